"""`pipla.fit`: one call that chooses the algorithm, its numbers and when to stop."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms import IRPL
from pipla.algorithms.base import Algorithm, given
from pipla.algorithms.interwoven import longest_moves
from pipla.engine.chunk import Program, start
from pipla.engine.diagnostics import warn_of
from pipla.engine.driver import Driver, History, refuse_after_fork
from pipla.engine.hooks import Callback, Every, View
from pipla.engine.result import (
    Snapshot,
    Status,
    restored,
    snapshot_of,
    warn_of_other_model,
)
from pipla.engine.run import as_dtype, checked_callbacks, joined
from pipla.engine.save import Save
from pipla.fitting.information import scores_of
from pipla.fitting.observer import Look, Observer
from pipla.fitting.pairs import Paired
from pipla.fitting.record import Standing
from pipla.fitting.result import Fit, fit_of
from pipla.fitting.verdict import LARGEST_BIAS, Estimate, judge, order_of
from pipla.models.model import Model, checked_point

#: The step, in units of the prior's own time.
STEP_SIZE = 0.08
#: The particles for an x of few numbers, what is few, and the particles for more.
MANY_PARTICLES, FEW_NUMBERS, FEW_PARTICLES = 100, 500, 20
#: The steps between two looks at the particles.
LOOK_EVERY = 10
#: The steps before the first verdict, and by how much the run is longer at the next one.
FIRST_VERDICT = 300
NEXT_VERDICT = 1.3
#: How often the step size is halved where its bias is too large.
MOST_HALVINGS = 3
#: A bias that keeps more than this part of itself when the step is halved is not one of the step.
ARTEFACT = 0.75


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
        theta: where theta starts: any pytree of floats.
        x: where x starts: one particle. Give this or `particles`.
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
    refuse_after_fork()
    particles = _start(x, particles, num_particles)
    max_steps = _checks.integer("max_steps", max_steps, least=FIRST_VERDICT)
    if max_seconds is not None:
        _checks.positive("max_seconds", _checks.real("max_seconds", max_seconds))
    key = jax.random.key(0) if key is None else key
    _checks.random_key("key", key)
    hooks = checked_callbacks(callbacks, progress)
    _checks.resolution("particles", particles)
    theta, particles = checked_point(model, theta, particles)
    wanted = _wanted(tolerance, theta)
    algorithm = IRPL(STEP_SIZE)
    algorithm.check(theta, particles)
    watch = _Watch(model, theta, particles, wanted, max_seconds)
    program = Program(model, as_dtype(Paired(algorithm), particles), key)
    history = History(start(program, theta, particles, False))
    found = _drive(program, algorithm, history, watch, [], max_steps, hooks)
    warn_of(found.warnings)
    return found


def resume(
    fit: Fit,
    model: Model,
    *,
    max_steps: int,
    tolerance: PyTree,
    max_seconds: float | None,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> Fit:
    """What `Fit.resume` returns."""
    refuse_after_fork()
    if fit.algorithm is None:
        raise ValueError("the algorithm of this fit is not in its file, so that it cannot resume.")
    max_steps = _checks.integer("max_steps", max_steps, least=1)
    if max_seconds is not None:
        _checks.positive("max_seconds", _checks.real("max_seconds", max_seconds))
        max_seconds += fit.seconds
    hooks = checked_callbacks(callbacks, progress)
    standing = fit.standing
    theta = jax.tree.map(lambda trace: jnp.asarray(trace[-1]), fit.theta_trace.fine)
    theta, particles = checked_point(model, theta, jax.tree.map(jnp.asarray, fit.particles))
    wanted = standing.tolerance if tolerance is None else _wanted(tolerance, theta)
    watch = _Watch(model, theta, particles, wanted, max_seconds)
    watch.take_up(fit)
    algorithm = fit.algorithm
    program = Program(model, as_dtype(Paired(algorithm), particles), standing.snapshot.key())
    history = History(
        restored(standing.snapshot, start(program, theta, particles, False)),
        fit.num_steps,
        traces=(fit.theta_trace,),
        seconds=fit.seconds,
        compile_seconds=fit.compile_seconds,
    )
    warn_of_other_model(standing.snapshot, model, stacklevel=4)
    until = fit.num_steps + max_steps
    return _drive(program, algorithm, history, watch, list(standing.halvings), until, hooks)


def _drive(
    program: Program,
    algorithm: Algorithm,
    history: History,
    watch: _Watch,
    halvings: list[str],
    until: int,
    hooks: Sequence[Callback],
) -> Fit:
    """Steps until all is known well enough or step `until`; the step is halved where it must be."""
    save = Save(moments_every=None)
    while True:
        driver = Driver(program, save, 0)
        history, status, message = driver.drive(history, until, [*hooks, watch])
        halved_enough = len(halvings) == MOST_HALVINGS or bool(watch.artefacts)
        too_late = history.step + FIRST_VERDICT > until
        if status is not Status.STOPPED or not watch.step_too_long or halved_enough or too_late:
            break
        algorithm = algorithm.rescaled(0.5)
        particles = history.carry.state.particles
        program = Program(program.model, as_dtype(Paired(algorithm), particles), program.key)
        halvings.append(f"after {history.step} steps the step size was halved: {watch.why}")
        watch.begin_again(history.step)
    state = history.carry.state
    watch.look(history.step, state.particles)
    estimate = watch.verdict([joined(history.traces, state.theta)])
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
        (_choices(algorithm), *halvings),
        _trees.num_particles(state.particles),
        watch.converged,
        watch.standing(snapshot_of(history.carry, program.key, save, program.model), halvings),
    )


class _Watch(Every):
    """The hook that looks at the particles, and stops the run when all is known well enough."""

    def __init__(
        self,
        model: Model,
        theta: PyTree,
        particles: PyTree,
        tolerance: np.ndarray | None,
        max_seconds: float | None,
    ) -> None:
        super().__init__(LOOK_EVERY)
        one = _trees.first(particles)
        self.names = _trees.leaf_names("theta", theta)
        self.longest = np.asarray(ravel_pytree(longest_moves(model, theta))[0], np.float64)
        self.observer = Observer(_trees.size(one), np.random.default_rng(0))
        self.tolerance, self.max_seconds = tolerance, max_seconds
        self.step_too_long, self.why, self.converged = False, "", False
        self.artefacts: tuple[str, ...] = ()
        # Of the last verdict that the step is too long, and of the one before its last change.
        self._bias: np.ndarray | None = None
        self._last_bias: np.ndarray | None = None
        self._model, self._since, self._next = model, 0, FIRST_VERDICT

    def take_up(self, fit: Fit) -> None:
        """Be where an earlier fit ended."""
        standing = fit.standing
        self.observer = fit.record.observer()
        self._since, self._next = standing.since, standing.next_verdict
        self.artefacts, self._last_bias = standing.artefacts, standing.last_bias

    def standing(self, snapshot: Snapshot, halvings: Sequence[str]) -> Standing:
        """Where the fit stands, to be taken up later."""
        return Standing(
            snapshot=snapshot,
            since=self._since,
            next_verdict=self._next,
            last_bias=self._last_bias,
            tolerance=self.tolerance,
            artefacts=self.artefacts,
            halvings=tuple(halvings),
        )

    def begin_again(self, step: int) -> None:
        """After a change of the step size."""
        self._last_bias = self._bias
        self._since, self._next, self.step_too_long = step, step + FIRST_VERDICT, False

    def __call__(self, view: View) -> str | None:
        if not self.is_due(view):
            return None
        self.look(view.step, view.particles)
        scores = scores_of(self._model, view.theta.fine, view.particles.fine)
        self.observer.add_scores(view.step, scores)
        if self.max_seconds is not None and view.seconds > self.max_seconds:
            return f"max_seconds = {self.max_seconds:g} were used up"
        if view.step < self._next:
            return None
        self._next = self._since + int(NEXT_VERDICT * (view.step - self._since))
        estimate = self.verdict([view.theta_trace])
        if estimate.step_too_long:
            self.step_too_long, self.why = True, _bias_sentence(estimate, self.names)
            self.artefacts = self._follow_the_step(estimate)
            self._bias = estimate.bias
            return self.why
        if not estimate.open_points:
            self.converged = True
            return "theta and x are known well enough"
        return None

    def look(self, step: int, particles: PyTree) -> None:
        """Keep what is wanted of these particles, if it is not kept already."""
        if not self.observer.means or self.observer.means[-1][0] < step:
            self.observer.add(Look(step, np.stack([_flat(lane) for lane in particles])))

    def _follow_the_step(self, estimate: Estimate) -> tuple[str, ...]:
        """The parts of theta whose bias does not fall with the step: no data hold them.

        A bias of the step is halved with it. A noise level that the data do not determine falls
        with the root of every step, for ever: its logarithm moves by the same amount each time.
        """
        if self._last_bias is None:
            return ()
        large = np.abs(estimate.bias) > LARGEST_BIAS * estimate.tolerance
        constant = np.abs(estimate.bias) > ARTEFACT * np.abs(self._last_bias)
        found = zip(self.names, large & constant, strict=True)
        return tuple(name for name, follows in found if follows)

    def verdict(self, traces: Sequence[PyTree]) -> Estimate:
        """What is known now."""
        coarse, fine = (
            np.concatenate([_flat(piece[lane]) for piece in traces]).astype(np.float64)
            for lane in (0, 1)
        )
        return judge(
            coarse,
            fine,
            self.observer,
            self.names,
            self.longest,
            self.tolerance,
            self._since,
            order_of(self._model),
        )


def _flat(tree: PyTree) -> np.ndarray:
    """Leaves side by side; the leading axis stays."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _bias_sentence(estimate: Estimate, names: list[str]) -> str:
    worst = int(np.argmax(np.abs(estimate.bias) / estimate.tolerance))
    return (
        f"half the step changes {names[worst]} by {abs(estimate.bias[worst]):.2g}, too much to "
        "be extrapolated"
    )


def _start(x: PyTree, particles: PyTree, num_particles: int | None) -> PyTree:
    if (x is None) == (particles is None):
        raise TypeError("give x, where one particle starts, or particles, and not both.")
    if particles is not None:
        if num_particles is not None:
            raise TypeError("num_particles goes with x; particles have their own number.")
        return particles
    x = _checks.floating("x", x)
    count = MANY_PARTICLES if _trees.size(x) <= FEW_NUMBERS else FEW_PARTICLES
    if num_particles is not None:
        count = _checks.integer("num_particles", num_particles, least=4)
    if count % 2:
        raise ValueError(f"num_particles must be even, because particles are paired; got {count}.")
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), x)


def _wanted(tolerance: PyTree, theta: PyTree) -> np.ndarray | None:
    if tolerance is None:
        return None
    _checks.positive("tolerance", tolerance)
    whole = jax.tree.broadcast(tolerance, theta)
    leaves = jax.tree.map(lambda t, leaf: np.broadcast_to(t, leaf.shape).ravel(), whole, theta)
    return np.concatenate([np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(leaves)])


def _choices(algorithm: Algorithm) -> str:
    """What was chosen, and why."""
    step_size = float(given("step_size", algorithm.numbers()["step_size"]))
    return f"step size {step_size:g} of the prior's own time, and half of it, side by side"
