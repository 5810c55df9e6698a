"""What is measured of each algorithm: its error beside the bound, and how each term scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pipla.algorithms import MYIPLA, MYPGD, PIPGLA, PIPULA
from pipla.algorithms.base import Algorithm
from pipla.engine.save import Save
from pipla.engine.sweep import sweep
from pipla_lab.experiments.theory import chaos, minimisers
from pipla_lab.experiments.theory.model import QuadraticL1
from pipla_lab.theory import Constants, Numbers, bound

PROBLEM = QuadraticL1()
#: Shares of the largest step size that the theorem allows.
SHARES = (0.9, 0.3, 0.1)
SMOOTHINGS = (0.3, 0.1, 0.03)
#: The smoothing where it is not varied.
SMOOTHING = 0.1
#: Distance of the start from the minimiser of U.
DISTANCE = 3.0


class Measured(NamedTuple):
    """One row.

    Attributes:
        quantity: what was measured.
        variable: against what; empty where it is not a slope.
        slope, slope_stderr: of the logarithms, and its standard error.
        slope_in_bound: that of the bound.
        worst: the largest ratio of measurement to bound.
        comparisons: the number of those ratios.
        series: arrays for the figures.
        runs: particles, steps and replicates, where there are runs.
        seconds, compile_seconds: of the runs.
    """

    quantity: str
    variable: str
    series: dict[str, NDArray]
    slope: float | None = None
    slope_stderr: float | None = None
    slope_in_bound: float | None = None
    worst: float | None = None
    comparisons: int = 0
    runs: tuple[int | None, int | None, int] = (None, None, 1)
    seconds: float = 0.0
    compile_seconds: float = 0.0


class Budget(NamedTuple):
    """How much is run: see `TheoryPreset`."""

    replicates: int
    num_steps: int
    particles: tuple[int, ...]
    seed: int


class _Runs(NamedTuple):
    trace: NDArray[np.float64]  # settings, replicates, steps
    seconds: float
    compile_seconds: float


def error_and_bound(budget: Budget, name: str) -> Measured:
    """The error of theta over a grid of steps, smoothings and particles, beside the bound."""
    theta, x = PROBLEM.slow_start(DISTANCE)
    settings = _settings(name)
    checkpoints = sorted({max(budget.num_steps // part, 1) for part in (100, 10, 1)})
    rows, seconds, compile_seconds = [], 0.0, 0.0
    for count in budget.particles:
        runs = _run(budget, [_algorithm(name, *each) for each in settings], count, theta, x)
        seconds, compile_seconds = seconds + runs.seconds, compile_seconds + runs.compile_seconds
        for (step_size, smoothing), trace in zip(settings, runs.trace, strict=True):
            constants = _constants(name, smoothing, theta, x)
            for n in checkpoints:
                squares = (trace[:, n - 1] - PROBLEM.maximiser(0.0)) ** 2
                error = math.sqrt(squares.mean())
                stderr = squares.std(ddof=1) / math.sqrt(len(squares)) / (2 * error)
                found = _best_bound(name, constants, Numbers(step_size, smoothing, count, n))
                lam = step_size if smoothing is None else smoothing
                rows.append((step_size, lam, count, n, error, stderr, found))
    table = np.asarray(rows)
    ratios = table[:, 4] / table[:, 6]
    return Measured(
        "error and bound",
        "",
        {"grid": table},
        worst=float(ratios.max()),
        comparisons=len(ratios),
        runs=(max(budget.particles), budget.num_steps, budget.replicates),
        seconds=seconds,
        compile_seconds=compile_seconds,
    )


def concentration(budget: Budget, name: str) -> Measured:
    """The standard deviation of theta at the end, against the number of particles."""
    theta, x = PROBLEM.slow_start(0.0)
    step_size, smoothing = _one_setting(name)
    sds, errors, seconds, compile_seconds = [], [], 0.0, 0.0
    for count in budget.particles:
        runs = _run(budget, [_algorithm(name, step_size, smoothing)], count, theta, x)
        seconds, compile_seconds = seconds + runs.seconds, compile_seconds + runs.compile_seconds
        late = runs.trace[0, :, budget.num_steps // 4 :]
        variances = ((late - late.mean()) ** 2).mean(axis=1)
        sds.append(math.sqrt(variances.mean()))
        errors.append(variances.std(ddof=1) / math.sqrt(len(variances)) / (2 * sds[-1]))
    counts, found = np.asarray(budget.particles, float), np.asarray(sds)
    constants = _constants(name, smoothing, theta, x)
    bounds = np.array(
        [
            bound(name, constants, Numbers(step_size, smoothing, n, 1))["concentration"]
            for n in budget.particles
        ]
    )
    slope, stderr = fit_slope(counts, found, np.asarray(errors))
    return Measured(
        "concentration",
        "N",
        {"x": counts, "y": found, "se": np.asarray(errors), "bound": bounds},
        slope,
        stderr,
        -0.5,
        float((found / bounds).max()),
        len(found),
        (max(budget.particles), budget.num_steps, budget.replicates),
        seconds,
        compile_seconds,
    )


def convergence(budget: Budget, name: str) -> Measured:
    """How fast two copies with the same noise come together, in units of log(1 - mu gamma)."""
    step_size, smoothing = _one_setting(name)
    mu = float(np.linalg.eigvalsh(PROBLEM.hessian())[0])
    rate = -math.log1p(-mu * step_size)
    # While the nearer copy is far from the kinks: g2 is linear there.
    steps = max(int(math.log(4.0) / rate), 2)
    count, runs = budget.particles[-1], []
    far = [PROBLEM.slow_start(distance) for distance in (40.0, 20.0)]
    for theta, x in far:
        algorithm = _algorithm(name, step_size, smoothing)
        runs.append(_run(budget._replace(num_steps=steps), [algorithm], count, theta, x))
    apart = np.abs(runs[0].trace[0] - runs[1].trace[0])
    n = np.arange(1, steps + 1)
    slopes = np.array([np.polyfit(n, np.log(each), 1)[0] for each in apart]) / rate
    power = 1.0 if name in ("MYIPLA", "MYPGD") else 0.5
    start = abs(far[0][0] - far[1][0])
    return Measured(
        "convergence",
        "n",
        {"x": n, "y": apart.mean(axis=0), "bound": start * np.exp(-power * rate * n)},
        float(slopes.mean()),
        float(slopes.std(ddof=1) / math.sqrt(len(slopes))),
        -power,
        runs=(count, steps, budget.replicates),
        seconds=sum(each.seconds for each in runs),
        compile_seconds=sum(each.compile_seconds for each in runs),
    )


def discretisation(budget: Budget, name: str) -> Measured:
    """The distance of theta to its target with infinitely many particles, against the step."""
    smooths = name in ("MYIPLA", "MYPGD")
    smoothing = SMOOTHING if smooths else None
    target = PROBLEM.maximiser(SMOOTHING if smooths else 0.0)
    theta, x = PROBLEM.slow_start(0.0)
    constants = _constants(name, smoothing, theta, x)
    steps = _largest_step(constants, name, smoothing) * 0.9 / 2 ** np.arange(4)
    found = np.array(
        [abs(chaos.stationary_theta(PROBLEM, name, g, SMOOTHING) - target) for g in steps]
    )
    many = 10**9  # particles
    bounds = np.array(
        [
            min(
                bound(name, constants, Numbers(g, smoothing, many, 1), proof)["discretisation"]
                for proof in ("entropy", "coupling")
            )
            for g in steps
        ]
    )
    slope, stderr = fit_slope(steps, found)
    return Measured(
        "discretisation",
        "gamma",
        {"x": steps, "y": found, "bound": bounds},
        slope,
        stderr,
        fit_slope(steps, bounds)[0],
        float((found / bounds).max()),
        len(found),
    )


def smoothing(budget: Budget, name: str) -> Measured:
    """The distance between the maximisers with and without smoothing, against the smoothing."""
    lams = np.array([0.4, 0.2, 0.1, 0.05, 0.025])
    if name == "quadratic + l1":
        found = [PROBLEM.maximiser(lam) - PROBLEM.maximiser(0.0) for lam in lams]
        constants = _constants("MYIPLA", SMOOTHING, *PROBLEM.slow_start(0.0))
        bounds = [_smoothing_bound(constants, lam) for lam in lams]
    elif name == "one-sided kink":
        kink = minimisers.OneSided()
        found = [kink.maximiser(lam) - kink.maximiser(0.0) for lam in lams]
        bounds = [kink.proved_bound(lam) for lam in lams]
    else:
        joint = name == "toy, joint prox"
        dimension, lams = (3, lams / 16) if joint else (50, lams)
        y = minimisers.observations(dimension)
        exact = minimisers.partial_maximiser(y, 0.0)
        maximiser = minimisers.joint_maximiser if joint else minimisers.partial_maximiser
        found = [maximiser(y, lam) - exact for lam in lams]
        constants = minimisers.toy_constants(dimension, joint)
        bounds = [_smoothing_bound(constants, lam) for lam in lams]
    distances, limits = np.abs(found), np.asarray(bounds)
    slope, stderr = fit_slope(lams, distances)
    series = {"x": lams, "y": distances, "bound": limits}
    if name == "one-sided kink":
        series["paper"] = np.array([kink.paper_bound(lam) for lam in lams])
    return Measured(
        "smoothing",
        "lambda",
        series,
        slope,
        stderr,
        fit_slope(lams, limits)[0],
        float((distances / limits).max()),
        len(lams),
    )


def propagation(budget: Budget, name: str) -> Measured:
    """The largest distance over time of theta to its path with infinitely many particles."""
    step_size, num_steps, theta = 0.05, 100, 1.0
    path = chaos.mean_field(PROBLEM, step_size, SMOOTHING, num_steps, theta)
    means, errors, seconds, compile_seconds = [], [], 0.0, 0.0
    for count in budget.particles:
        key = jax.random.fold_in(jax.random.key(budget.seed), 10_000 + count)
        shape = (budget.replicates, count, PROBLEM.dim_x)
        particles = jax.random.normal(key, shape, jnp.result_type(float))
        runs = _run(
            budget._replace(num_steps=num_steps),
            [_algorithm("MYIPLA", step_size, SMOOTHING)],
            *(count, theta, None, particles),
        )
        seconds, compile_seconds = seconds + runs.seconds, compile_seconds + runs.compile_seconds
        largest = np.abs(runs.trace[0] - path).max(axis=1)
        means.append(largest.mean())
        errors.append(largest.std(ddof=1) / math.sqrt(len(largest)))
    counts = np.asarray(budget.particles, float)
    slope, stderr = fit_slope(counts, np.asarray(means), np.asarray(errors))
    return Measured(
        "propagation of chaos",
        "N",
        {"x": counts, "y": np.asarray(means), "se": np.asarray(errors)},
        slope,
        stderr,
        -0.5,
        runs=(max(budget.particles), num_steps, budget.replicates),
        seconds=seconds,
        compile_seconds=compile_seconds,
    )


def fit_slope(
    x: NDArray[np.float64], y: NDArray[np.float64], stderr: NDArray[np.float64] | None = None
) -> tuple[float, float]:
    """The slope of log y against log x, and its standard error.

    With standard errors of y the fit is weighted, and the error follows from them; without, it
    follows from the residuals: how far from a power law the points are.
    """
    u, v = np.log(x), np.log(y)
    weight = np.ones_like(u) if stderr is None else (y / stderr) ** 2
    centred = u - np.average(u, weights=weight)
    spread = float(np.sum(weight * centred**2))
    slope = float(np.sum(weight * centred * v) / spread)
    if stderr is not None:
        return slope, 1 / math.sqrt(spread)
    residual = v - np.mean(v) - slope * centred
    return slope, math.sqrt(float(residual @ residual) / max(len(u) - 2, 1) / spread)


# Settings and runs. #


def _settings(name: str) -> list[tuple[float, float | None]]:
    """Step sizes and smoothings inside the conditions of the theorem."""
    constants = _constants(name, SMOOTHING, *PROBLEM.slow_start(0.0))
    found: list[tuple[float, float | None]] = []
    for share in SHARES:
        if name == "PIPULA":
            found.append((share * _largest_step(constants, name, None), None))
        elif name == "PIPGLA":
            step = share * _largest_step(constants, name, None)
            # Both ends of the interval for the smoothing; at the upper one the bound is infinite.
            found += [(step, step * (1 + part * constants.mu * step)) for part in (0.0, 0.5)]
        else:
            found += [(share * _largest_step(constants, name, lam), lam) for lam in SMOOTHINGS]
    return found


def _one_setting(name: str) -> tuple[float, float | None]:
    lam = SMOOTHING if name in ("MYIPLA", "MYPGD") else None
    constants = _constants(name, lam, *PROBLEM.slow_start(0.0))
    return 0.3 * _largest_step(constants, name, SMOOTHING), lam


def _largest_step(constants: Constants, name: str, smoothing: float | None) -> float:
    if smoothing is None:
        return 1 / constants.lipschitz
    margin = constants.mu if name == "MYPGD" else 0.0
    return 1 / (constants.stiffness(smoothing) + margin)


def _constants(
    name: str, smoothing: float | None, theta: float, x: NDArray[np.float64]
) -> Constants:
    smooths = name in ("MYIPLA", "MYPGD") and smoothing is not None
    return PROBLEM.constants(theta, x, float(smoothing or 0.0) if smooths else 0.0)


def _best_bound(name: str, constants: Constants, numbers: Numbers) -> float:
    return min(bound(name, constants, numbers, p).total for p in ("entropy", "coupling"))


def _smoothing_bound(constants: Constants, smoothing: float) -> float:
    step = 0.5 / (constants.stiffness(smoothing) + constants.mu)
    return bound("MYIPLA", constants, Numbers(step, smoothing, 1, 1))["smoothing"]


def _algorithm(name: str, step_size: float, smoothing: float | None) -> Algorithm:
    if name == "PIPULA":
        return PIPULA(step_size)
    make: Any = {"MYIPLA": MYIPLA, "MYPGD": MYPGD, "PIPGLA": PIPGLA}[name]
    return make(step_size, step_size if smoothing is None else smoothing)


def _run(
    budget: Budget,
    algorithms: Sequence[Algorithm],
    count: int,
    theta: float,
    x: NDArray[np.float64] | None,
    particles: Any = None,
) -> _Runs:
    """Replicates of each algorithm, all particles at x; theta after every step."""
    dtype = jnp.result_type(float)
    own = particles is not None
    if not own:
        particles = jnp.tile(jnp.asarray(x, dtype), (count, 1))
    start = jnp.full((budget.replicates,) if own else (), theta, dtype)
    result = sweep(
        PROBLEM.model(),
        algorithms,
        theta=start,
        particles=particles,
        num_steps=budget.num_steps,
        key=jax.random.fold_in(jax.random.key(budget.seed), count),
        num_replicates=budget.replicates,
        start_per_replicate=own,
        save=Save(moments_every=None),
        progress=False,
    )
    if result.interrupted:
        raise KeyboardInterrupt
    trace = np.asarray(result.theta_trace, np.float64)
    return _Runs(trace, result.seconds, result.compile_seconds)
