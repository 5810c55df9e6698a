"""What a run returns."""

from __future__ import annotations

import dataclasses
import enum
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla._version import __version__
from pipla.algorithms.base import Algorithm
from pipla.engine.diagnostics import monte_carlo_error
from pipla.engine.save import Save


class Status(enum.Enum):
    """How a run ended; `Result.message` says it in a sentence."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    UNRELIABLE = "unreliable"
    NONFINITE = "non-finite"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run returns.

    Attributes:
        theta: the average of theta's trace after burn-in.
        theta_stderr: its Monte-Carlo standard error. It does not include bias.
        theta_trace: theta after every step; leading axis: steps.
        particles: the last particles.
        x_mean, x_variance: moments of x (or of `Save.quantity`) over particles and steps after
            burn-in; `None` when not saved or when burn-in was not reached.
        saved_particles: kept by `Save(particles_every=...)`, leading axis: time; or `None`.
        status, message: how the run ended, and a sentence about it. A run that made all its steps
            but should not be believed is UNRELIABLE.
        warnings: what speaks against the answer, one sentence each.
        num_steps, burn_in: steps done (all of them, after a resume), and those left out of `theta`.
        prox_gap: the largest duality gap of an iterative prox; 0 for closed forms.
        seconds, compile_seconds: wall time of the steps, and of compiling.
        algorithm: with all its numbers; `None` after loading one that holds code.
        versions: of pipla, jax and Python; and the device.
        snapshot: everything the next step needs, for `pipla.resume`.
        numbers: those of an algorithm that a file could not hold (see `algorithm`), by name.
    """

    theta_trace: PyTree
    particles: PyTree
    x_mean: PyTree
    x_variance: PyTree
    saved_particles: PyTree
    status: Status
    message: str
    num_steps: int
    burn_in: int
    prox_gap: float
    seconds: float
    compile_seconds: float
    algorithm: Algorithm | None
    versions: dict[str, str]
    snapshot: Snapshot
    warnings: tuple[str, ...] = ()
    numbers: dict[str, PyTree] = dataclasses.field(default_factory=dict)

    @property
    def theta(self) -> PyTree:
        """The average of theta after burn-in; the last theta when burn-in was not reached."""
        return jax.tree.map(lambda trace: trace.mean(axis=0, dtype=np.float64), self._settled())

    @property
    def theta_stderr(self) -> PyTree:
        """The Monte-Carlo standard error of `theta`."""
        return jax.tree.map(monte_carlo_error, self._settled())

    @property
    def theta_last(self) -> PyTree:
        """Theta after the last step."""
        return jax.tree.map(lambda trace: trace[-1], self.theta_trace)

    def save(self, path: str | Path) -> Path:
        """Write the result to a folder of its own (replaced whole, never half-written)."""
        from pipla.engine.storage import save  # which needs to know what a result is

        return save(self, path)

    def __repr__(self) -> str:
        title = "" if self.algorithm is None else f"{self.algorithm.label}: "
        theta, error = _trees.brief(self.theta), _trees.brief(self.theta_stderr)
        return (
            f"Result({title}theta={theta} ± {error} after "
            f"{self.num_steps} steps, {self.seconds:.2f} s, {self.status.value})"
        )

    def _settled(self) -> PyTree:
        first = self.burn_in if self.num_steps > self.burn_in else max(self.num_steps - 1, 0)
        return jax.tree.map(lambda trace: trace[first:], self.theta_trace)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The leaves of the last carry, the key and what was kept: enough to resume bit for bit."""

    leaves: tuple[np.ndarray, ...]
    key_data: np.ndarray
    key_kind: str
    moments_every: int | None
    particles_every: int | None
    has_quantity: bool  # whether the moments are those of a `Save.quantity`, which is code

    def key(self) -> jax.Array:
        """The run's key."""
        return jax.random.wrap_key_data(jnp.asarray(self.key_data), impl=self.key_kind)


def _as_numbers(leaf: jax.Array) -> np.ndarray:
    """A leaf of the carry as numbers; of a random key (an optimiser may hold one), its data."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _as_leaf(numbers: np.ndarray, like: jax.Array) -> jax.Array:
    """The inverse of `_as_numbers`, for a leaf such as `like`."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(numbers), impl=jax.random.key_impl(like))
    return jnp.asarray(numbers)


def snapshot_of(carry: PyTree, key: jax.Array, save: Save) -> Snapshot:
    """The snapshot of a run that stands here."""
    return Snapshot(
        leaves=tuple(map(_as_numbers, jax.tree.leaves(carry))),
        key_data=np.asarray(jax.random.key_data(key)),
        key_kind=str(jax.random.key_impl(key)),
        moments_every=save.moments_every,
        particles_every=save.particles_every,
        has_quantity=save.quantity is not None,
    )


def restored(snapshot: Snapshot, blank: PyTree) -> PyTree:
    """The carry of a snapshot, in the structure of `blank`; an error where it does not fit."""
    likes, structure = jax.tree.flatten(blank)
    shapes = [(leaf.shape, leaf.dtype) for leaf in map(_as_numbers, likes)]
    if shapes != [(leaf.shape, leaf.dtype) for leaf in snapshot.leaves]:
        raise ValueError(
            "model, algorithm or save does not fit the result: the state to resume from has other "
            "shapes or dtypes. Give those of the original run, and set jax_enable_x64 as it was."
        )
    return jax.tree.unflatten(structure, map(_as_leaf, snapshot.leaves, likes))


def provenance() -> dict[str, str]:
    """Versions and device, to be kept with every result."""
    return {
        "pipla": __version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }
