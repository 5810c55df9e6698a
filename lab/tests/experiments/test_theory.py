"""The experiment `theory`: measurements below their bounds, and the page that shows them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import pipla
from pipla_lab.experiments import run
from pipla_lab.experiments.theory import measure, minimisers
from pipla_lab.experiments.theory.measure import Budget, fit_slope
from pipla_lab.theory import ALGORITHMS, Numbers, bound


def test_a_slope_is_that_of_a_power_law_and_its_error_that_of_the_points():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    assert fit_slope(x, 3 * x**-0.5) == (pytest.approx(-0.5), pytest.approx(0, abs=1e-12))
    rng = np.random.default_rng(0)
    found = [fit_slope(x, np.exp(0.1 * rng.normal(size=4)), np.full(4, 0.1)) for _ in range(500)]
    slopes, errors = np.array(found).T
    # Five standard errors of a standard deviation: a right program fails once in a million.
    assert abs(slopes.std() / errors.mean() - 1) < 5 / np.sqrt(2 * 500)


@pytest.mark.slow
def test_particles_approach_their_law_on_the_grid():
    """At five standard errors a right program fails once in a million seeds."""
    found = measure.propagation(Budget(32, 100, (4, 64), 0), "MYIPLA")
    assert abs(found.slope + 0.5) < 5 * found.slope_stderr
    assert found.slope_stderr < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_errors_are_below_the_bounds_where_the_prox_moves_theta(name):
    """Three observations of the toy model, with the joint prox of every particle averaged (E7)."""
    problem, lam = minimisers.toy_problem(3), 0.05
    constants = minimisers.toy_constants(3, joint=True)
    step = 0.3 / (constants.lipschitz + 1 / lam)
    smooths = name.startswith("MY")
    algorithm = getattr(pipla, name)(*((step, lam) if smooths else (step,)))
    theta, replicates, count, steps = -2.0, 16, 8, 200
    particles = jnp.tile(problem.model.data["y"], (count, 1))
    result = pipla.sweep(
        problem.model,
        algorithm,
        theta=jnp.asarray(theta),
        particles=particles,
        num_steps=steps,
        key=jax.random.key(0),
        num_replicates=replicates,
        save=pipla.Save(moments_every=None),
    )
    best = minimize(_potential, np.zeros(4), method="Powell", options={"xtol": 1e-8}).x
    start = np.append(theta, problem.model.data["y"])
    # The minimiser of the envelope is as near to that of U as the maximisers are.
    near = constants.slope * np.sqrt(lam / (2 * constants.mu)) if smooths else 0.0
    constants = dataclasses.replace(constants, start=float(np.linalg.norm(start - best) + near))
    for n in (1, 20, steps):
        error = np.sqrt(np.mean((result.theta_trace[0, :, n - 1] - problem.maximiser) ** 2))
        found = bound(name, constants, Numbers(step, lam if smooths else None, count, n))
        assert 0.01 * found.total < error < found.total


def _potential(z):
    y, t = minimisers.observations(3), z[1:] - z[0]
    return np.sum((z[1:] - y) ** 2 + minimisers.RIDGE * t**2) / 2 + np.abs(t).sum()


@pytest.mark.slow
def test_the_experiment_stays_below_the_bounds_and_writes_its_page(tmp_path):
    said = []
    options = {"out": tmp_path / "out", "log": said.append, "progress": False}
    results = run("theory", "tiny", algorithms=("PIPULA",), **options)
    quantities = ["error and bound", "concentration", "convergence", "discretisation"]
    assert [row.quantity for row in results.rows] == quantities
    assert all(row.worst is None or 0 < row.worst < 1 for row in results.rows)
    convergence = results.rows[2]
    # Far from the kinks the contraction is that of g1: one in units of log(1 - mu gamma).
    assert convergence.slope == pytest.approx(-1, abs=1e-3)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "How each term scales" in page
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {"bounds", "terms"}
    again = run("theory", "tiny", algorithms=("PIPULA",), **options)
    assert any("kept" in line for line in said)
    assert again.rows == results.rows
