"""`pipla.fit`: one call that chooses the algorithm, its numbers and when to stop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms import IRPL
from pipla.algorithms.base import Algorithm, Both, given
from pipla.algorithms.interwoven import LARGEST_THETA, prior_units
from pipla.algorithms.wrappers.paired import Paired
from pipla.diagnostics import warn_of
from pipla.engine.chunk import Program, start
from pipla.engine.compiled import CompiledChunks, History
from pipla.engine.driver import check_surroundings, drive
from pipla.engine.hooks import Callback
from pipla.engine.result import Status, restored, snapshot_of, warn_of_other_model
from pipla.engine.run import as_dtype, checked_callbacks, in_structure_of, joined
from pipla.engine.save import Save
from pipla.fitting.result import Fit, fit_of
from pipla.fitting.signs import check_sign
from pipla.fitting.watch import FIRST_VERDICT, Watch
from pipla.models.hidden_scales import with_hidden_scales
from pipla.models.model import (
    NOISE,
    PRIOR,
    Model,
    checked_point,
    require_model,
    without_fixed_leaves,
)

#: The step, in units of the prior's own time.
STEP_SIZE = 0.08
#: The particles for an x of few numbers, what is few, and the particles for more.
MANY_PARTICLES, FEW_NUMBERS, FEW_PARTICLES = 100, 500, 20
#: How often the step size is halved where its bias is too large.
MOST_HALVINGS = 3
#: Where values become non-finite, so many steps are this many times shorter; or this number squared
#: and so on, this many times.
SHORT_STEPS, SHORTER, MOST_SHORTENED = 100, 10, 4


def fit(
    model: Model,
    *,
    theta: PyTree,
    x: PyTree = None,
    particles: PyTree = None,
    num_particles: int | None = None,
    tolerance: PyTree = None,
    max_steps: int = 20_000,
    max_seconds: float | None = None,
    key: Key[Array, ""] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> Fit:
    """Estimate theta and sample x: nothing to choose.

    Arguments:
        model: what to fit.
        theta: where theta starts: any pytree of floats, of 200 numbers at most, modules included.
            In a module, arrays of floats are learned; its other leaves are carried along. A noise
            that the likelihood learns as `theta["noise"]` may be left out: it starts at the root
            mean square of the residuals.
        x: where x starts, likewise: one particle. Give this or `particles`.
        particles: where each particle starts; the leading axis of every leaf counts them.
        num_particles: how many particles start at `x`: by default 100, or 20 for an x of more
            than 500 numbers.
        tolerance: how accurate theta shall be: a number, or a pytree like theta. By default a
            tenth of its own standard error.
        max_steps: the most steps; the fit stops earlier when it is accurate enough.
        max_seconds: the most seconds of steps.
        key: `jax.random.key(seed)`; seed 0 by default. Equal keys give equal fits.
        callbacks, progress: as in `pipla.run`.

    Returns:
        A `Fit`: print it, or `fit.summary()`.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> problem = pipla.problems.toy()
        >>> fit = pipla.fit(problem.model, theta=0.0, x=jnp.zeros(problem.dimension))
        >>> bool(fit.converged), bool(abs(fit.theta - problem.maximiser) < fit.theta_stderr / 5)
        (True, True)
    """
    check_surroundings()
    particles = _start(x, particles, num_particles)
    max_steps = _checks.integer("max_steps", max_steps, least=FIRST_VERDICT)
    if max_seconds is not None:
        _checks.positive("max_seconds", _checks.real("max_seconds", max_seconds))
    key = jax.random.key(0) if key is None else key
    _checks.random_key("key", key)
    hooks = checked_callbacks(callbacks, progress)
    _checks.resolution("particles", particles)
    require_model(model)
    theta = _with_noise(model, theta, particles)
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    _check_size(theta)
    one = _trees.first(particles)
    model = with_hidden_scales(model, theta, one)
    _check_width(model, theta)
    wrong_sign = check_sign(model, theta, one)
    wanted = _wanted(tolerance, theta)
    algorithm = IRPL(STEP_SIZE)
    algorithm.check(theta, particles)
    watch = Watch(model, theta, particles, wanted, max_seconds)
    program = Program(model, as_dtype(Paired(algorithm), particles), key)
    history = History(start(program, theta, particles, False))
    found = _drive(program, algorithm, history, watch, [], max_steps, hooks)
    if wrong_sign is not None:
        findings = (wrong_sign, *found.findings)
        found = dataclasses.replace(found, findings=findings, converged=False)
    warn_of(found.findings)
    return found


def resume(
    fit: Fit,
    model: Model,
    *,
    theta: PyTree,
    particles: PyTree,
    max_steps: int,
    tolerance: PyTree,
    max_seconds: float | None,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> Fit:
    """What `Fit.resume` returns."""
    check_surroundings()
    if fit.algorithm is None:
        raise ValueError("the algorithm of this fit is not in its file, so that it cannot resume.")
    max_steps = _checks.integer("max_steps", max_steps, least=1)
    if max_seconds is not None:
        _checks.positive("max_seconds", _checks.real("max_seconds", max_seconds))
        max_seconds += fit.seconds
    hooks = checked_callbacks(callbacks, progress)
    standing = fit.standing
    last = jax.tree.map(lambda trace: trace[-1], fit.theta_trace.fine)
    if theta is None and not fit.modules:  # still in memory, with its functions
        last = _trees.combine(last, _trees.split(fit.theta)[1])
    theta = in_structure_of("theta", theta, last, fit.modules)
    particles = in_structure_of("particles", particles, fit.particles, fit.modules)
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    model = with_hidden_scales(model, theta, _trees.first(particles))
    wanted = standing.tolerance if tolerance is None else _wanted(tolerance, theta)
    watch = Watch(model, theta, particles, wanted, max_seconds)
    watch.take_up(fit)
    algorithm = fit.algorithm
    program = Program(model, as_dtype(Paired(algorithm), particles), standing.snapshot.key())
    history = History(
        restored(standing.snapshot, start(program, theta, particles, False)),
        fit.num_steps,
        traces=(Both(*(_trees.like("theta", theta, trace) for trace in fit.theta_trace)),),
        seconds=fit.seconds,
        compile_seconds=fit.compile_seconds,
    )
    warn_of_other_model(standing.snapshot, model, stacklevel=4)
    until = fit.num_steps + max_steps
    return _drive(program, algorithm, history, watch, list(standing.changes), until, hooks)


def _drive(
    program: Program,
    algorithm: Algorithm,
    history: History,
    watch: Watch,
    changes: list[str],
    until: int,
    hooks: Sequence[Callback],
) -> Fit:
    """Steps until all is known well enough or step `until`; shorter ones where they must be.

    Where values become non-finite, all begins again with first steps that are shorter. Where the
    bias of the step is too large, it is halved.
    """
    save = Save(moments_every=None)
    first, goal, restart = history, until, ""
    shortened, halved = 0, _halvings(algorithm)
    while True:
        chunks = CompiledChunks(program, save, 0, goal)
        watch.may_halve = halved < MOST_HALVINGS
        history, status, message = drive(chunks, history, [*hooks, watch])
        if status is Status.NONFINITE and shortened < MOST_SHORTENED:
            if history.step - first.step > SHORT_STEPS and halved < MOST_HALVINGS:
                halved, algorithm = halved + 1, algorithm.rescaled(0.5)  # too long at any time
            shortened += 1
            factor = SHORTER**shortened
            changes = [each for each in changes if each != restart]
            restart = (
                f"at step {history.step + 1} a value became non-finite: begun again "
                f"with {SHORT_STEPS} steps that are {factor} times shorter, then step size "
                f"{_step_size(algorithm):g}"
            )
            changes.append(restart)
            goal = min(first.step + SHORT_STEPS, until)
            program = _paired(program, algorithm.rescaled(1 / factor), first)
            history = first._replace(
                seconds=history.seconds, compile_seconds=history.compile_seconds
            )
            watch.forget()
            continue
        if status is Status.COMPLETED and goal < until:  # the short ones
            goal, program = until, _paired(program, algorithm, history)
            watch.begin_again(history.step)
            continue
        if status is Status.STOPPED and watch.reason:
            message = f"ended after {history.step} steps: {watch.reason}"
        halved_enough = halved == MOST_HALVINGS or bool(watch.artefacts)
        too_late = history.step + FIRST_VERDICT > until
        if status is not Status.STOPPED or not watch.step_too_long or halved_enough or too_late:
            break
        halved += 1
        algorithm = algorithm.rescaled(0.5)
        program = _paired(program, algorithm, history)
        changes.append(f"after {history.step} steps the step size was halved: {watch.why}")
        watch.begin_again(history.step)
    state = history.carry.state
    watch.look(history.step, state.particles)
    estimate = watch.verdict([joined(history.traces, state.theta)])
    doubt = watch.doubt(estimate)
    if doubt and not watch.converged:
        point = f"a smaller step is needed ({doubt})"
        estimate = estimate._replace(open_points=(*estimate.open_points, point))
    if status is Status.COMPLETED and not estimate.open_points and not estimate.step_too_long:
        watch.converged = True
    return fit_of(
        program.model,
        state.theta.fine,
        algorithm,
        history,
        status,
        message,
        estimate,
        watch.observer,
        watch.names,
        watch.artefacts,
        (_choices(algorithm), *changes),
        _trees.num_particles(state.particles),
        watch.converged,
        watch.standing(snapshot_of(history.carry, program.key, save, program.model), changes),
    )


def _paired(program: Program, algorithm: Algorithm, history: History) -> Program:
    """The program with another algorithm."""
    particles = history.carry.state.particles
    return Program(program.model, as_dtype(Paired(algorithm), particles), program.key)


def _halvings(algorithm: Algorithm) -> int:
    """How often its step size was halved."""
    return round(math.log2(STEP_SIZE / _step_size(algorithm)))


def _step_size(algorithm: Algorithm) -> float:
    return float(given("step_size", algorithm.numbers()["step_size"]))


def _start(x: PyTree, particles: PyTree, num_particles: int | None) -> PyTree:
    if (x is None) == (particles is None):
        raise TypeError("give x, where one particle starts, or particles, and not both.")
    if particles is not None:
        if num_particles is not None:
            raise TypeError("num_particles goes with x; particles have their own number.")
        return particles
    x, fixed = _trees.split(x)
    x = _checks.floating("x", x)
    count = MANY_PARTICLES if _trees.size(x) <= FEW_NUMBERS else FEW_PARTICLES
    if num_particles is not None:
        count = _checks.integer("num_particles", num_particles, least=4)
    if count % 2:
        raise ValueError(f"num_particles must be even, because particles are paired; got {count}.")
    return _trees.combine(
        jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), x), fixed
    )


def _with_noise(model: Model, theta: PyTree, particles: PyTree) -> PyTree:
    """Theta as it was given, completed by the noise of the likelihood where it lacks one.

    It starts at the root mean square of the residuals. A theta that is no dict is the prior's.
    """
    if model.smooth.sets_theta() != (NOISE,) or NOISE in _trees.parts_of(theta):
        return theta
    whole = dict(theta) if isinstance(theta, dict) else {PRIOR: theta}
    blank = {**whole, NOISE: jnp.zeros((), _trees.dtype(particles))}
    best = model.smooth.closed_form(blank, particles)
    start = blank[NOISE] if best is None else best[NOISE]
    return {**whole, NOISE: jnp.where(jnp.isfinite(start), start, 0.0)}


def _check_size(theta: PyTree) -> None:
    """Newton's method and the standard errors need a matrix of theta's numbers."""
    size = _trees.size(theta)
    if size > LARGEST_THETA:
        raise ValueError(
            f"theta has {size} numbers, and pipla.fit takes at most {LARGEST_THETA}: it learns "
            "them by Newton's method and gives each a standard error, for which their curvature is "
            "a matrix. Use pipla.run with an optimiser, such as "
            "pipla.MYPGD(theta_optimizer=optax.adam(0.01)), or make some of them part of x."
        )


def _check_width(model: Model, theta: PyTree) -> None:
    """A half-width of 0 is the start of no move."""
    for path, unit in jax.tree_util.tree_leaves_with_path(prior_units(model, theta)):
        if not np.all(unit > 0):
            raise ValueError(
                f"{_checks.where('theta', path)}: the prior has no width there; start at a "
                "positive number, such as the largest |x| that you expect."
            )


def _wanted(tolerance: PyTree, theta: PyTree) -> np.ndarray | None:
    if tolerance is None:
        return None
    tolerance = _trees.split(tolerance)[0]
    for path, leaf in _checks.leaves("tolerance", tolerance):
        _checks.positive(_checks.where("tolerance", path), leaf)
    try:
        whole = jax.tree.broadcast(tolerance, theta)
        parts = jax.tree.map(lambda t, leaf: np.broadcast_to(t, leaf.shape), whole, theta)
    except ValueError as error:
        raise ValueError(
            "tolerance must be a number or a pytree of numbers like theta; got the structure "
            f"{jax.tree.structure(tolerance)} for a theta of structure {jax.tree.structure(theta)}."
        ) from error
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(parts)])


def _choices(algorithm: Algorithm) -> str:
    """What was chosen, and why."""
    step_size = _step_size(algorithm)
    return (
        f"steps of {step_size:g} and {step_size / 2:g}, in units of the time that x takes to cross "
        "its prior; both runs share their noise, and their difference shows the bias of the step"
    )
