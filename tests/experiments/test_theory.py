"""The experiment `theory`: measurements below their bounds, and the page that shows them."""

import numpy as np
import pytest

from pipla.experiments import run
from pipla.experiments.theory import measure
from pipla.experiments.theory.measure import Budget, fit_slope


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
