"""What a fit has seen of x and where it stands, as arrays that a file can hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int, PyTree

from pipla.engine.archive import DamagedResultError
from pipla.engine.result import Snapshot
from pipla.fitting.information import Scores
from pipla.fitting.observer import Block, Look, Observer


@dataclasses.dataclass(frozen=True)
class Record:
    """The contents of an `Observer`; x is flattened, and axes of length 2 are the two step sizes.

    Attributes:
        look_steps, looks: the steps at which particles were kept, and these.
        block_steps: the first and the last step of each block of moments.
        block_counts, block_means, block_squares: how many values it is of, and its moments.
        mean_steps, means: averages over particles of the watched elements and of their squares.
        score_steps, score_covariances, score_hessians: for theta's standard error, by form.
        seen: how many looks there were.
    """

    look_steps: Int[np.ndarray, " t"]
    looks: Float[np.ndarray, "t 2 n d"]
    block_steps: Int[np.ndarray, "b 2"]
    block_counts: Float[np.ndarray, " b"]
    block_means: Float[np.ndarray, "b 2 d"]
    block_squares: Float[np.ndarray, "b 2 d"]
    mean_steps: Int[np.ndarray, " m"]
    means: Float[np.ndarray, "m 2 2 w"]
    score_steps: Int[np.ndarray, " s"]
    score_covariances: Float[np.ndarray, "s forms k k"]
    score_hessians: Float[np.ndarray, "s forms k k"]
    seen: int

    @classmethod
    def of(cls, observer: Observer) -> Record:
        """What an observer has seen until now; it has looked at least once."""
        looks, blocks, scores = observer.looks, observer.blocks, observer.scores
        return cls(
            look_steps=np.asarray([look.step for look in looks], np.int64),
            looks=np.stack([look.particles for look in looks]),
            block_steps=np.asarray([(block.first, block.last) for block in blocks]),
            block_counts=np.asarray([block.number for block in blocks], np.float64),
            block_means=np.stack([block.mean for block in blocks]),
            block_squares=np.stack([block.squares for block in blocks]),
            mean_steps=np.asarray([step for step, _ in observer.means], np.int64),
            means=np.stack([pair for _, pair in observer.means]),
            score_steps=np.asarray([step for step, _ in scores], np.int64),
            score_covariances=np.asarray([[f.covariance for f in forms] for _, forms in scores]),
            score_hessians=np.asarray([[f.hessian for f in forms] for _, forms in scores]),
            seen=observer._seen,
        )

    def observer(self) -> Observer:
        """An observer that has seen the same, to resume with."""
        observer = Observer(self.looks.shape[-1], np.random.default_rng(0))
        observer.looks = list(map(Look, self.look_steps.tolist(), self.looks))
        observer.blocks = [
            Block(first, last, count, mean, squares)
            for (first, last), count, mean, squares in zip(
                self.block_steps.tolist(),
                self.block_counts.tolist(),
                self.block_means,
                self.block_squares,
                strict=True,
            )
        ]
        observer.means = list(zip(self.mean_steps.tolist(), self.means, strict=True))
        forms = zip(self.score_covariances, self.score_hessians, strict=True)
        scores = [list(map(Scores, *each)) for each in forms]
        observer.scores = list(zip(self.score_steps.tolist(), scores, strict=True))
        observer._seen = self.seen
        return observer

    def fine_samples(self, burn_in: int) -> Float[np.ndarray, "t n d"]:
        """The particles of the smaller step that were kept after burn-in, or the last ones."""
        after = self.looks[self.look_steps > burn_in]
        return (after if len(after) else self.looks[-1:])[:, 1]

    def check(self, num_particles: int, size: int, parameters: int) -> None:
        """Raise `DamagedResultError` where the arrays do not fit these numbers or each other."""
        looks, blocks, means = len(self.look_steps), len(self.block_steps), len(self.mean_steps)
        scores, axes = len(self.score_steps), np.shape(self.score_covariances)
        forms = axes[1] if len(axes) == 4 else 0
        # A run that was interrupted before its first look has no scores, in no form.
        square = (scores, forms, parameters, parameters) if scores else (0,)
        expected: dict[str, tuple[Any, ...]] = {
            "look_steps": ("i", looks),
            "looks": ("f", looks, 2, num_particles, size),
            "block_steps": ("i", blocks, 2),
            "block_counts": ("f", blocks),
            "block_means": ("f", blocks, 2, size),
            "block_squares": ("f", blocks, 2, size),
            "mean_steps": ("i", means),
            "means": ("f", means, 2, 2, len(Observer(size, np.random.default_rng(0)).watched)),
            "score_steps": ("i", scores),
            "score_covariances": ("f", *square),
            "score_hessians": ("f", *square),
        }
        for name, (kind, *shape) in expected.items():
            array = np.asarray(getattr(self, name))
            if array.dtype.kind != kind or array.shape != tuple(shape):
                raise DamagedResultError(f"{name} has shape {array.shape}, not {tuple(shape)}.")
        if not looks or not blocks or self.seen < 1:
            raise DamagedResultError("it has seen nothing of x.")


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a fit stands: what its next step and its next verdict need. Theta is flattened.

    Attributes:
        snapshot: the state of the two runs, and the key.
        since, next_verdict: the first step of this step size, and the step of the next verdict.
        last_bias: the bias of theta before the last change of the step size; `None` without one.
        claim: theta when it had settled at the step size before the last change; `None` without.
        tolerance: that was asked for; `None` for a tenth of the standard error.
        artefacts: the parts of theta that follow the step size.
        changes: for each time the step size was changed, why.
    """

    snapshot: Snapshot
    since: int
    next_verdict: int
    last_bias: PyTree
    claim: PyTree
    tolerance: PyTree
    artefacts: tuple[str, ...]
    changes: tuple[str, ...]

    def check(self, parameters: int, num_steps: int) -> None:
        """Raise `DamagedResultError` where it does not fit these numbers."""
        if not self.since <= num_steps:
            raise DamagedResultError("since is after the last step.")
        for name in ("last_bias", "claim", "tolerance"):
            array = getattr(self, name)
            if array is None:
                continue
            if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
                raise DamagedResultError(f"{name} does not consist of real numbers.")
            if array.shape != (parameters,):
                raise DamagedResultError(f"{name} does not have a number for each of theta.")
        if not all(isinstance(leaf, np.ndarray) for leaf in self.snapshot.leaves):
            raise DamagedResultError("the snapshot is not a tuple of arrays.")
        if self.snapshot.key().shape != ():
            raise DamagedResultError("the key of the snapshot has a wrong shape.")
