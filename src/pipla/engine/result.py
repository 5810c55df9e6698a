"""What a run returns."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import platform
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import _checks, _trees
from pipla._version import __version__
from pipla.algorithms.base import Algorithm
from pipla.diagnostics import Finding, monte_carlo_error
from pipla.engine.batches import LargeParts
from pipla.engine.save import Save
from pipla.models.model import Model

#: The fingerprint of an array takes at most this many of its numbers.
SAMPLE = 2**20

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    Theta, particles and `x_mean` of modules are modules again. Their traces, errors and variances
    have `None` in the places of leaves that are not arrays of floats.

    Attributes:
        theta: the average of theta after burn-in.
        theta_mcse: its Monte-Carlo standard error. It does not include bias.
        theta_trace: theta after every step; leading axis: steps. Of a leaf with more than 10 000
            numbers (more than 100 in a theta of more than 100 000) no trace is kept (`None`): its
            average and error are those of batch means.
        particles: the last particles.
        x_mean, x_variance: moments of x (or of `Save.quantity`) over particles and steps after
            burn-in; `None` when not saved or when burn-in was not reached.
        saved_particles: kept by `Save(particles_every=...)`, of x or of `Save.quantity`, leading
            axis: time; or `None`.
        status, message: how the run ended, and a sentence about it. A run that made all its steps
            but should not be believed is UNRELIABLE.
        findings: what speaks against the answer.
        num_steps, burn_in: steps done (all of them, after a resume), and those left out of `theta`.
        prox_gap: the largest duality gap of an iterative prox; 0 for closed forms.
        seconds, compile_seconds: wall time of the steps, and of compiling.
        algorithm: with all its numbers; `None` after loading one that holds code.
        versions: of pipla, jax and Python; and the device.
        snapshot: everything the next step needs, for `pipla.resume`.
        numbers: those of an algorithm that a file could not hold (see `algorithm`), by name.
        large: the large leaves of theta, which have no trace; or `None`.
        fixed: the leaves of theta that are not learned, such as functions; or `None`.
        modules: after loading, the names of what a file could not hold of theta and particles:
            modules come back as dicts.
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
    findings: tuple[Finding, ...] = ()
    numbers: dict[str, PyTree] = dataclasses.field(default_factory=dict)
    large: LargeParts | None = None
    fixed: PyTree = None
    modules: dict[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def theta(self) -> PyTree:
        """The average of theta after burn-in; the last theta when burn-in was not reached."""
        small = jax.tree.map(lambda trace: trace.mean(axis=0, dtype=np.float64), self._settled())
        return _trees.combine(small, None if self.large is None else self.large.mean(), self.fixed)

    @functools.cached_property
    def theta_mcse(self) -> PyTree:
        """The Monte-Carlo standard error of `theta`."""
        small = jax.tree.map(monte_carlo_error, self._settled())
        return _trees.combine(small, None if self.large is None else self.large.stderr())

    @property
    def theta_last(self) -> PyTree:
        """Theta after the last step."""
        small = jax.tree.map(lambda trace: trace[-1], self.theta_trace)
        return _trees.combine(small, None if self.large is None else self.large.last, self.fixed)

    def save(self, path: str | Path) -> Path:
        """Write the result to a folder of its own (replaced whole, never half-written)."""
        from pipla.engine.storage import save  # which needs to know what a result is

        return save(self, path)

    # What shows a result is imported where it is used, because it needs to know what a result is.

    def summary(self, most: int = 12) -> str:
        """A table of `most` numbers of theta and of x, at 80 columns."""
        from pipla.engine.views import summary_of

        return summary_of(self, _checks.integer("most", most, least=1))

    def plot(self, most: int = 5) -> Figure:
        """A matplotlib figure: traces of `most` numbers of theta, autocorrelations, marginals of x.

        The marginals are of the particles saved after burn-in; without those, of the last ones.
        """
        from pipla.engine.views import figure_of

        return figure_of(self, _checks.integer("most", most, least=1))

    def to_arviz(self) -> Any:
        """The draws for ArviZ: a `DataTree`, or an `InferenceData` for ArviZ before 1.

        The group `posterior` holds the particles that were saved after burn-in, as chains; without
        them the last particles, as draws of one chain. The group `theta` holds theta's trace after
        burn-in, as one chain.
        """
        from pipla.engine.views import draws_of

        return draws_of(self)

    def __repr__(self) -> str:
        title = "" if self.algorithm is None else f"{self.algorithm.label}: "
        return (
            f"Result({title}theta={self._theta_in_brief()} after "
            f"{self.num_steps} steps, {self.seconds:.2f} s, {self.status.value})"
        )

    def _theta_in_brief(self) -> str:
        """The first numbers of theta; errors of numbers that are not shown would take long."""
        leaves = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(self._settled())]
        without = 0 if self.large is None else _trees.size(self.large.last)
        more = f" and {without} numbers without a trace" if without else ""
        if not leaves:
            return more.removeprefix(" and ")
        first = np.concatenate([leaf[:, :5] for leaf in leaves], axis=1)[:, :5]
        mean, error = first.mean(axis=0, dtype=np.float64), monte_carlo_error(first)
        return f"{_trees.brief(mean)} ± {_trees.brief(error)}{more}"

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
    fingerprint: str = ""  # of the model's numbers; none in older files

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


def snapshot_of(carry: PyTree, key: jax.Array, save: Save, model: Model) -> Snapshot:
    """The snapshot of a run that stands here."""
    return Snapshot(
        leaves=tuple(map(_as_numbers, jax.tree.leaves(carry))),
        key_data=np.asarray(jax.random.key_data(key)),
        key_kind=str(jax.random.key_impl(key)),
        moments_every=save.moments_every,
        particles_every=save.particles_every,
        has_quantity=save.quantity is not None,
        fingerprint=fingerprint(model),
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


# Whether a run is resumed with the model it was begun with. #


class OtherModelWarning(UserWarning):
    """A run is resumed with a model whose numbers or terms are not those of the original one."""


def warn_of_other_model(snapshot: Snapshot, model: Model, stacklevel: int = 3) -> None:
    """Warn where a snapshot was made with another model.

    Not an error: a person may mean it, for example to go on with more observations of the same
    shape.
    """
    if snapshot.fingerprint and snapshot.fingerprint != fingerprint(model):
        warnings.warn(
            "model is not the one that this result was made with: its data, its numbers or its "
            "terms differ. Averages over both mean little; resume with the original model, or "
            "begin a new run from `result.theta_last` and `result.particles`.",
            OtherModelWarning,
            stacklevel=stacklevel,
        )


def fingerprint(model: Model | PyTree) -> str:
    """A hash of the arrays, choices and classes of a model, or of data; not of code, nor of dtypes.

    Floats count up to a millionth of the largest one: data that are loaded in another dtype, or a
    spectrum that another machine has computed, are the same. Of large arrays a million numbers are
    taken, evenly spaced.
    """
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest.update, model)
    return digest.hexdigest()


def _feed(update: Any, node: Any) -> None:
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        numbers = _as_numbers(node) if isinstance(node, jax.Array) else np.asarray(node)
        flat = numbers.reshape(-1)[:: max(1, numbers.size // SAMPLE)]
        update(f"{numbers.shape}{numbers.dtype.kind}".encode())
        if numbers.dtype.kind in "fc":
            update(_in_units(flat))
        elif numbers.dtype.kind in "iub":
            update(flat.astype(np.int64).tobytes())
    elif node is None or isinstance(node, bool | int | float | str):
        update(repr(node).encode())
    elif isinstance(node, dict | list | tuple) or _trees.is_module(node):
        update(type(node).__name__.encode())
        for name, child in _trees.parts_of(node).items():
            update(repr(name).encode())
            _feed(update, child)
    else:
        leaves = jax.tree.leaves(node)  # of another node, such as a sparse matrix
        for leaf in leaves if len(leaves) != 1 or leaves[0] is not node else ():
            _feed(update, leaf)


def _in_units(numbers: np.ndarray) -> bytes:
    """Floats as whole multiples of a millionth of the largest, and the largest in five digits."""
    with np.errstate(over="ignore"):
        parts = np.stack([numbers.real, numbers.imag]).astype(np.float32).astype(np.float64)
    finite = np.isfinite(parts)
    largest = float(np.max(np.abs(parts), where=finite, initial=0.0)) or 1.0
    beyond = np.where(parts > 0, 2.0**40, -(2.0**40))  # infinite bounds of a constraint
    units = np.rint(np.where(finite, parts, 0.0) / largest * 2**20)
    return f"{largest:.5g}".encode() + np.where(finite, units, beyond).astype(np.int64).tobytes()
