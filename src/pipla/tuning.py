r"""Step size, smoothing and block scaling from the model's own curvature.

$L$ is the largest eigenvalue of the Hessian of $g_1$ in $(\theta, x)$, in the metric of the theta
scale: of $P^{1/2} \nabla^2 g_1 P^{1/2}$. It is measured by power iteration on Hessian-vector
products at the given points, so it is a local number: start where the run starts.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla.algorithms.base import Algorithm
from pipla.model import Model, num_particles
from pipla.prox.calculus import coupled_sizes


class Curvature(NamedTuple):
    """The extreme eigenvalues of the (scaled) Hessian of g1, over a few particles."""

    largest: Float[Array, ""]
    smallest: Float[Array, ""]


class Suggestion(NamedTuple):
    """Numbers to start from, each with the reason for it in `reasons`."""

    step_size: float
    smoothing: float
    theta_scale: PyTree
    curvature: Curvature
    reasons: dict[str, str]

    def __str__(self) -> str:
        return "\n".join(
            f"{name} = {getattr(self, name)}: {why}" for name, why in self.reasons.items()
        )


def suggest(
    model: Model, theta: PyTree, particles: PyTree, theta_scale: PyTree = "auto"
) -> Suggestion:
    r"""Default `step_size`, `smoothing` and `theta_scale` for a model, from this start.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> model = pipla.Model(lambda theta, x, y: 2.0 * jnp.sum((x - y) ** 2),
        ...                     pipla.prox.LaplaceLocation(), data=jnp.zeros(5))
        >>> numbers = pipla.tuning.suggest(model, jnp.zeros(()), jnp.zeros((10, 5)))
        >>> print(f"L = {numbers.curvature.largest:.3f}, step_size = {numbers.step_size:.3f}")
        L = 4.000, step_size = 0.123
    """
    scale = resolve_scale(model, theta, particles, theta_scale)
    curvature = measure_curvature(model, theta, particles, scale)
    largest = float(curvature.largest)
    # A flat g1 sets no scale of its own: fall back on unit curvature.
    stiffness = largest if largest > 0 else 1.0
    smoothing = 1 / stiffness
    step_size = 0.98 / (stiffness + 1 / smoothing)
    reasons = {
        "smoothing": f"1/L with L = {stiffness:.4g}: the envelope is then as stiff as g1 and "
        "halves the largest step, no more (Durmus, Moulines and Pereyra 2018)",
        "step_size": "0.98/(L + 1/smoothing), inside the conditions of every theorem "
        "(PAPER section 5): MYIPLA, MYPGD < 1/(L + 1/smoothing), PIPGLA <= 1/L",
        "theta_scale": "1/d of the block of x that theta is coupled to: theta's drift sums d "
        "terms, so that theta moves at the pace of one coordinate of x"
        if isinstance(theta_scale, str)
        else "as given",
    }
    return Suggestion(step_size, smoothing, scale, curvature, reasons)


def complete(algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree) -> Algorithm:
    """The algorithm with the numbers that were left out filled in by `suggest`."""
    missing = algorithm.missing()
    if not missing:
        return algorithm
    numbers = suggest(model, theta, particles, getattr(algorithm, "theta_scale", 1.0))
    values = {name: getattr(numbers, name) for name in missing}
    return eqx.tree_at(
        lambda a: [getattr(a, name) for name in missing],
        algorithm,
        [jax.tree.map(jnp.asarray, values[name]) for name in missing],
        is_leaf=lambda leaf: leaf is None,
    )


def broken_conditions(
    algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree
) -> list[str]:
    """Sentences, one for each condition of the theory that the settings break at this start."""
    scale = getattr(algorithm, "theta_scale", 1.0)
    curvature = measure_curvature(model, theta, particles, scale)
    limits = algorithm.limits(*curvature)
    step_size = getattr(algorithm, "step_size", None)
    smoothing = getattr(algorithm, "smoothing", None)
    found = []
    slack = 1 + 1e-3  # the power iteration is good to about that
    if step_size is not None and float(step_size) > float(limits.step_size) * slack:
        found.append(
            f"step_size = {float(step_size):.4g} exceeds {float(limits.step_size):.4g} "
            f"({limits.source}, with L = {float(curvature.largest):.4g} at the start)"
        )
    if smoothing is not None and limits.smoothing is not None:
        low, high = map(float, limits.smoothing)
        if not low / slack <= float(smoothing) <= high * slack:
            found.append(
                f"smoothing = {float(smoothing):.4g} is outside [{low:.4g}, {high:.4g}] "
                f"({limits.source}, with mu = {float(curvature.smallest):.4g} at the start)"
            )
    return found


def warn_broken(algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree) -> None:
    """Warn of each broken condition; the run goes on."""
    for sentence in broken_conditions(algorithm, model, theta, particles):
        warnings.warn(
            f"{sentence}. The guarantee does not cover this run: expect bias, or divergence; "
            "`pipla.tuning.suggest` gives settings that it covers.",
            TheoryWarning,
            stacklevel=3,
        )


class TheoryWarning(UserWarning):
    """A condition of the theory does not hold for these settings."""


def resolve_scale(model: Model, theta: PyTree, particles: PyTree, theta_scale: PyTree) -> PyTree:
    """`theta_scale` as numbers: `"auto"` is 1/d of the block each part of theta is coupled to."""
    if not isinstance(theta_scale, str):
        return theta_scale
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    sizes = coupled_sizes(model.nonsmooth, theta, one)
    return jax.tree.map(lambda size, leaf: jnp.asarray(1 / size, leaf.dtype), sizes, theta)


def measure_curvature(
    model: Model, theta: PyTree, particles: PyTree, theta_scale: PyTree = 1.0, probes: int = 4
) -> Curvature:
    """The extreme eigenvalues of the Hessian of g1 at up to `probes` particles."""
    count = min(probes, num_particles(particles))
    chosen = jax.tree.map(lambda leaf: leaf[:count], particles)
    scale = jax.tree.map(
        lambda p, t: jnp.asarray(p, t.dtype), jax.tree.broadcast(theta_scale, theta), theta
    )
    return _extremes(model, theta, chosen, scale)


@eqx.filter_jit
def _extremes(model: Model, theta: PyTree, particles: PyTree, scale: PyTree) -> Curvature:
    root = jax.tree.map(jnp.sqrt, scale)

    def gradient(theta: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        return jax.grad(model.smooth_value, argnums=(0, 1))(theta, x)

    def at(x: PyTree) -> Curvature:
        def times_hessian(v: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            v = (jax.tree.map(jnp.multiply, root, v[0]), v[1])
            out = jax.jvp(gradient, (theta, x), v)[1]
            return jax.tree.map(jnp.multiply, root, out[0]), out[1]

        extreme = _dominant(times_hessian, (theta, x))
        # Shifted by the dominant eigenvalue the other end of the spectrum dominates.
        other = _dominant(
            lambda v: jax.tree.map(lambda h, u: h - extreme * u, times_hessian(v), v), (theta, x)
        )
        ends = jnp.stack([extreme, extreme + other])
        return Curvature(jnp.max(ends), jnp.min(ends))

    ends = jax.vmap(at)(particles)
    return Curvature(jnp.max(ends.largest), jnp.min(ends.smallest))


def _dominant(times: Any, like: PyTree, iterations: int = 60) -> Float[Array, ""]:
    """The eigenvalue of largest modulus of a symmetric operator, by power iteration."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    draws = [
        jax.random.normal(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    ]

    def dot(a: PyTree, b: PyTree) -> Array:
        return sum(jax.tree.leaves(jax.tree.map(lambda u, v: jnp.sum(u * v), a, b)))  # type: ignore[return-value]

    def unit(v: PyTree) -> PyTree:
        norm = jnp.sqrt(dot(v, v))
        return jax.tree.map(lambda leaf: leaf / jnp.where(norm > 0, norm, 1.0), v)

    def body(_: Any, v: PyTree) -> PyTree:
        return unit(times(v))

    v = jax.lax.fori_loop(0, iterations, body, unit(jax.tree.unflatten(structure, draws)))
    return dot(v, times(v))
