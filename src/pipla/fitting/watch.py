"""What `pipla.fit` does between chunks: it looks at the particles, and judges when to stop."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from pipla import _trees
from pipla.algorithms.base import Both
from pipla.algorithms.interwoven import longest_moves, prior_units
from pipla.engine.hooks import Every, View
from pipla.engine.result import Snapshot
from pipla.fitting.information import scores_of
from pipla.fitting.observer import Look, Observer
from pipla.fitting.record import Standing
from pipla.fitting.result import Fit
from pipla.fitting.verdict import LARGEST_BIAS, Estimate, judge, order_of
from pipla.models.model import Model

#: The steps between two looks at the particles.
LOOK_EVERY = 10
#: The steps before the first verdict, and by how much the run is longer at the next one.
FIRST_VERDICT = 300
NEXT_VERDICT = 1.3
#: A bias that keeps more than this part of itself when the step is halved is not one of the step.
ARTEFACT = 0.75
#: And this many Monte-Carlo errors of theta: between particles that have not arrived, anything is.
WELL_KNOWN = 8
#: The steps that a theta has to reach a place where the data determine it.
HOPELESS_AFTER = 1000
#: A bias of more than this part of the tolerance is only believed when half the step agrees.
CONFIRMED = 0.25


class Watch(Every):
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
        self.names = _trees.leaf_names("theta", theta)
        self.longest = np.asarray(ravel_pytree(longest_moves(model, theta))[0], np.float64)
        flat, unravel = ravel_pytree(theta)
        self._theta_of = lambda row: unravel(jnp.asarray(row, flat.dtype))
        size = _trees.size(_trees.first(particles))
        self._begin = lambda: Observer(size, np.random.default_rng(0))
        self.observer = self._begin()
        self.tolerance, self.max_seconds = tolerance, max_seconds
        self.step_too_long, self.why, self.converged = False, "", False
        self.may_halve = True
        self.reason: str | None = None
        self.artefacts: tuple[str, ...] = ()
        # Of the last verdict that the step is too long, and of the one before its last change.
        self._bias: np.ndarray | None = None
        self._last_bias: np.ndarray | None = None
        # Theta when it had settled at the step size before the last change.
        self._claim: np.ndarray | None = None
        self._model, self._since, self._next = model, 0, FIRST_VERDICT

    def take_up(self, fit: Fit) -> None:
        """Be where an earlier fit ended."""
        standing = fit.standing
        self._begin = fit.record.observer
        self.observer = self._begin()
        self._since, self._next = standing.since, standing.next_verdict
        self.artefacts, self._last_bias = standing.artefacts, standing.last_bias
        self._claim = standing.claim

    def standing(self, snapshot: Snapshot, changes: Sequence[str]) -> Standing:
        """Where the fit stands, to be taken up later."""
        return Standing(
            snapshot=snapshot,
            since=self._since,
            next_verdict=self._next,
            last_bias=self._last_bias,
            claim=self._claim,
            tolerance=self.tolerance,
            artefacts=self.artefacts,
            changes=tuple(changes),
        )

    def forget(self) -> None:
        """Begin again where this watch began."""
        self.observer = self._begin()

    def begin_again(self, step: int) -> None:
        """After a change of the step size."""
        self._last_bias = self._bias
        self._since, self._next, self.step_too_long = step, step + FIRST_VERDICT, False

    def __call__(self, view: View) -> str | None:
        self.reason = self._reason_to_stop(view)
        return self.reason

    def _reason_to_stop(self, view: View) -> str | None:
        if not self.is_due(view):
            return None
        theta, particles = _learned(view.theta.fine), Both(*map(_learned, view.particles))
        self.look(view.step, particles)
        scores = scores_of(self._model, theta, particles.fine)
        self.observer.add_scores(view.step, scores)
        if self.max_seconds is not None and view.seconds > self.max_seconds:
            return f"max_seconds = {self.max_seconds:g} were used up"
        if view.step < self._next:
            return None
        self._next = self._since + int(NEXT_VERDICT * (view.step - self._since))
        estimate = self.verdict([view.theta_trace])
        if estimate.hopeless and view.step - self._since >= HOPELESS_AFTER:
            return "theta has no standard error, and more steps will not help"
        if estimate.step_too_long:
            self.step_too_long, self.why = True, _bias_sentence(estimate, self.names)
            self.artefacts = self._follow_the_step(estimate)
            self._bias = estimate.bias
            return self.why
        doubt = self.doubt(estimate)
        time_left = view.step + FIRST_VERDICT <= view.num_steps
        if doubt and estimate.settled and self.may_halve and time_left:
            self.step_too_long, self.why = True, doubt
            self._bias, self._claim = estimate.bias, estimate.theta
            return self.why
        if estimate.x_bias and estimate.settled and self.may_halve and time_left:
            self.step_too_long, self._bias = True, estimate.bias
            self.why = f"it changes {estimate.x_bias}, too much to be extrapolated"
            return self.why
        if not estimate.open_points and not doubt:
            self.converged = True
            return "theta and x are known well enough"
        return None

    def doubt(self, estimate: Estimate) -> str:
        """Why half the step must be tried: nothing where it has led to the same theta.

        Extrapolation believes that the bias is a power of the step. Where the likelihood is stiff
        in other directions than the prior, halving a long step hardly changes a large bias.
        """
        if self._claim is None:
            apart = np.maximum(np.abs(estimate.bias) - 2 * estimate.mcse, 0)
            limits, words = CONFIRMED * estimate.tolerance, "to confirm the bias {1:.2g} of {0}"
        else:
            apart = np.abs(estimate.theta - self._claim)
            limits, words = estimate.tolerance + 3 * estimate.mcse, "it has changed {0} by {1:.2g}"
        worst = int(np.argmax(apart / limits))
        is_small = apart[worst] <= limits[worst]
        return "" if is_small else words.format(self.names[worst], apart[worst])

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
        # After the last halving the bias has had several chances to fall.
        errors = WELL_KNOWN if self.may_halve else 2
        known = np.abs(estimate.bias) > errors * estimate.mcse
        found = zip(self.names, large & constant & known, strict=True)
        return tuple(name for name, follows in found if follows)

    def verdict(self, traces: Sequence[PyTree]) -> Estimate:
        """What is known now."""
        coarse, fine = (
            np.concatenate([_flat(piece[lane]) for piece in traces]).astype(np.float64)
            for lane in (0, 1)
        )
        units = prior_units(self._model, self._theta_of(fine[-1]))
        return judge(
            coarse,
            fine,
            self.observer,
            self.names,
            self.longest,
            self.tolerance,
            self._since,
            order_of(self._model),
            np.asarray(ravel_pytree(units)[0], np.float64),
        )


def _learned(tree: PyTree) -> PyTree:
    """A view shows modules whole; what is learned of them is their arrays of floats."""
    return _trees.split(tree)[0]


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
