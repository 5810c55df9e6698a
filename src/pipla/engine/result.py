"""What a run returns, and how it is kept: arrays and settings in a folder, no code, no pickle."""

from __future__ import annotations

import dataclasses
import enum
import platform
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla._version import __version__
from pipla.algorithms.base import Algorithm
from pipla.engine import storage
from pipla.engine.diagnostics import monte_carlo_error


class Status(enum.Enum):
    """How a run ended; `Result.message` says it in a sentence."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    NONFINITE = "non-finite"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run returns.

    Attributes:
        theta: the average of theta's trace after burn-in.
        theta_stderr: its Monte-Carlo standard error. It does not include bias.
        theta_trace: theta after every step; leading axis: steps.
        particles: the last cloud.
        x_mean, x_variance: moments of x (or of `Save.quantity`) over particles and steps after
            burn-in; `None` when not saved or when burn-in was not reached.
        saved_particles: clouds kept by `Save(particles_every=...)`, leading axis: time; or `None`.
        status, message: how the run ended, and a sentence about it.
        num_steps, burn_in: steps done (all of them, after a resume), and those left out of `theta`.
        prox_gap: the largest duality gap of an iterative prox; 0 for closed forms.
        seconds, compile_seconds: wall time of the steps, and of compiling.
        algorithm: with all its numbers; `None` after loading one that holds code.
        versions: of pipla, jax and Python; and the device.
        snapshot: everything the next step needs, for `pipla.resume`.
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
        return storage.save(self, path)

    def __repr__(self) -> str:
        name = getattr(self.algorithm, "name", "") or type(self.algorithm).__name__
        title = "" if self.algorithm is None else f"{name}: "
        return (
            f"Result({title}theta={_brief(self.theta)} ± {_brief(self.theta_stderr)} after "
            f"{self.num_steps} steps, {self.seconds:.2f} s, {self.status.value})"
        )

    def _settled(self) -> PyTree:
        first = self.burn_in if self.num_steps > self.burn_in else max(self.num_steps - 1, 0)
        return jax.tree.map(lambda trace: trace[first:], self.theta_trace)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The leaves of the last carry, with the key and the policy: enough to go on bit for bit."""

    leaves: tuple[np.ndarray, ...]
    key_data: np.ndarray
    key_kind: str
    moments_every: int | None
    particles_every: int | None
    has_quantity: bool  # whether the moments are those of a `Save.quantity`, which is code

    def key(self) -> jax.Array:
        """The run's key."""
        return jax.random.wrap_key_data(jnp.asarray(self.key_data), impl=self.key_kind)


def as_numbers(leaf: jax.Array) -> np.ndarray:
    """A leaf of the carry as numbers; of a random key (an optimiser may hold one), its data."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def as_leaf(numbers: np.ndarray, like: jax.Array) -> jax.Array:
    """The inverse of `as_numbers`, for a leaf such as `like`."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(numbers), impl=jax.random.key_impl(like))
    return jnp.asarray(numbers)


def provenance() -> dict[str, str]:
    """Versions and device, to be kept with every result."""
    return {
        "pipla": __version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }


def load(path: str | Path) -> Result:
    """Read what `Result.save` wrote. Safe on files from strangers: nothing is executed."""
    return storage.load(path)


def _brief(tree: PyTree) -> str:
    numbers: list[Any] = [f"{v:.4g}" for leaf in jax.tree.leaves(tree) for v in np.ravel(leaf)[:4]]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers[:4])})"
