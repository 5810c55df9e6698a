"""What a fit says against its own answer."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from pipla import _checks, _trees
from pipla.algorithms.surrogate import LARGEST_MATRIX
from pipla.diagnostics import Finding
from pipla.engine.result import Status
from pipla.fitting.verdict import Estimate
from pipla.models.model import Model, x_block

#: The pairs of particles between which kinks are looked for, and the places between two of them.
PAIRS, PLACES = 32, 16
#: The part of a change of the gradient that kinks must make up to be named, and by how many
#: standard errors it must be above 0.
JUMPS, SURE = 0.2, 5.0


def kinked(model: Model, theta: PyTree, particles: PyTree) -> Finding | None:
    r"""That the smooth part of a model is not smooth in x. Nothing where it is.

    Between two particles $x$ and $x + d$ the gradient of a smooth $g_1$ changes by the integral of
    its Hessian, $\nabla g_1(x + d) - \nabla g_1(x) = \int_0^1 \nabla^2 g_1(x + sd)\, d\,
    \mathrm{d}s$. Compared are the products of both with $d$, leaf by leaf. Automatic derivatives
    see nothing of a kink ($|x|$ has the second derivative 0 almost everywhere), and the integral
    lacks its jumps. It is the mean over places drawn from equal parts of the way: unbiased, with
    an error of at most that of independent places.
    """
    x = _trees.first(particles)
    if jax.eval_shape(model.smooth.flow, theta, x, _trees.ones_per_leaf(x), x) is not None:
        return None  # a Gaussian
    changes, bends = _between(model, theta, particles)
    for (path, change), bend in zip(
        jax.tree_util.tree_leaves_with_path(changes), jax.tree.leaves(bends), strict=True
    ):
        each = np.asarray(bend, np.float64)  # (pairs, places)
        jumps = abs(np.sum(np.asarray(change, np.float64) - each.mean(axis=1)))
        error = np.sqrt(np.sum(each.var(axis=1, ddof=1)) / PLACES)
        size = float(np.sum(np.abs(change)))
        if jumps > max(JUMPS * size, SURE * error):
            name = _checks.where("x", path)
            return Finding(
                name,
                f"smooth has kinks in {name} (abs, max, relu, sorting); {jumps / size:.0%} of the "
                "change of its gradient from particle to particle are jumps, of which its second "
                "derivatives show nothing",
                "write what has a kink as a term of pipla.prox, or round it off over a part of the "
                "posterior's width, such as jnp.sqrt(z**2 + width**2) for jnp.abs(z)",
            )
    return None


@_trees.bounded_jit()
def _between(
    fixed: Model, arrays: Model, theta: PyTree, particles: PyTree
) -> tuple[PyTree, PyTree]:
    """For each pair and leaf, the change of the gradient, and the Hessian at some places."""
    model = eqx.combine(fixed, arrays)
    number, pair = _trees.num_particles(particles), np.arange(PAIRS)
    # Of few particles, each with several others; then again, with other places.
    other = (pair + 1 + pair // number % (number - 1)) % number
    first, last = (
        jax.tree.map(lambda leaf, which=which: leaf[which], particles)
        for which in (pair % number, other)
    )
    kind = _trees.dtype(particles)
    parts = jax.random.uniform(jax.random.key(0), (PAIRS, PLACES), kind)
    places = (jnp.arange(PLACES, dtype=kind)[None] + parts) / PLACES

    def one(x: PyTree, y: PyTree, places: Array) -> tuple[PyTree, PyTree]:
        slope = jax.grad(lambda x: model.smooth_value(theta, x))
        way = _trees.subtract(y, x)

        def bend(place: Array) -> PyTree:
            at = _trees.add(x, _trees.scale(place, way))
            return jax.tree.map(jnp.vdot, way, jax.jvp(slope, (at,), (way,))[1])

        change = jax.tree.map(jnp.vdot, way, _trees.subtract(slope(y), slope(x)))
        return change, jax.vmap(bend)(places)

    return jax.lax.map(lambda pair: one(*pair), (first, last, places))


def uneven(
    model: Model, theta: PyTree, x: PyTree, x_sd: PyTree, step_size: float
) -> Finding | None:
    r"""What the step is too long for: some elements of a leaf of x. Nothing where it is not.

    The prox of half the smaller step moves an element by $\gamma/4$ lengths of the prior, and no
    sd is larger than one. Where the smallest sd is below that part of the largest one, the step
    moves an element by more than its sd, which a noise level takes for noise. Once it has done so
    all sds are large, but the likelihood's curvatures, whose roots they are the inverse of, are as
    far apart as ever.
    """
    curvatures = _curvatures(model, theta, x)
    for (path, sd), curvature in zip(
        jax.tree_util.tree_leaves_with_path(x_sd), jax.tree.leaves(curvatures), strict=True
    ):
        ratio = max(_ratio(sd), np.sqrt(_ratio(curvature)))
        if ratio > 4 / step_size:
            name = _checks.where("x", path)
            return Finding(
                name,
                f"the data determine some elements of {name} {ratio:.2g} times more closely than "
                "others, and the step is too long for these",
                "if they belong to features in different units, divide each feature by its "
                "standard deviation",
            )
    return None


def _curvatures(model: Model, theta: PyTree, x: PyTree) -> PyTree:
    """The diagonal of the likelihood's Hessian; ones where x is too large for a matrix."""
    if _trees.size(x) > LARGEST_MATRIX:
        return jax.tree.map(np.ones_like, x)
    flat, unravel = ravel_pytree(x)
    times = x_block(model, theta, x, _trees.ones_per_leaf(x))

    def element(row: Array) -> Array:
        return jnp.vdot(row, ravel_pytree(times(unravel(row)))[0])

    return unravel(jax.lax.map(element, jnp.eye(flat.size, dtype=flat.dtype)))


def _ratio(values: Array) -> float:
    """The largest divided by the smallest that is not 0."""
    known = np.asarray(values, np.float64)
    known = known[known > 0]
    return float(np.max(known) / np.min(known)) if known.size else 1.0


def findings_of(
    estimate: Estimate,
    names: list[str],
    artefacts: tuple[str, ...],
    converged: bool,
    status: Status,
    message: str,
    cause: Finding | None,
) -> tuple[Finding, ...]:
    """What speaks against a fit; `cause` is what `kinked` or `uneven` found."""
    found = []
    # Where values became non-finite, nothing is known.
    flat = [name for name, se in zip(names, estimate.stderr, strict=True) if not np.isfinite(se)]
    flat = flat if status is not Status.NONFINITE else []
    if cause is not None and (artefacts or flat):
        which = ", ".join(name for name in names if name in artefacts or name in flat)
        sentence = f"{which}: not found, although the data may well determine it, because "
        found.append(dataclasses.replace(cause, about=which, sentence=sentence + cause.sentence))
    elif cause is not None:
        found.append(cause)
    elif artefacts:
        which = ", ".join(artefacts)
        found.append(
            Finding(
                which,
                f"{which}: decided by the step size, not by the data; half the step changes it as "
                "much as the whole one did, and the likelihood seems to have no maximum there (it "
                "rises as a noise level goes to 0, for instance)",
                "fix it at a value that is known or estimated by other means",
            )
        )
    unknown = [] if estimate.unknown is None else np.asarray(names)[estimate.unknown].tolist()
    unmeasured = ", ".join(name for name in flat if name in unknown)
    undetermined = ", ".join(name for name in flat if name not in unknown)
    if undetermined and cause is None:
        found.append(
            Finding(
                undetermined,
                f"{undetermined}: the data do not determine it; the likelihood is flat there, so "
                "that it has no standard error. Where a scale has gone towards 0, or a strength "
                "upwards, the data show nothing of its x",
                "fix it, or simplify the model",
            )
        )
    if unmeasured and cause is None:
        found.append(
            Finding(
                unmeasured,
                f"{unmeasured}: its standard error is not known, although the data may well "
                "determine it; it is a small difference of large numbers, which this run cannot "
                "tell from 0",
                "if smooth scales or shifts x by it, leave x as it is and use a term that learns "
                "it, such as pipla.prox.LaplaceScale or LaplaceLocation",
            )
        )
    if not converged:
        if status is Status.NONFINITE:
            found.append(
                Finding(
                    "theta",
                    "theta or a particle became non-finite, also with first steps that were "
                    "shorter",
                    "start nearer to the answer, and look for a log or a division by zero in "
                    "smooth",
                )
            )
        else:
            why = "; ".join(estimate.open_points) or message
            found.append(Finding("theta and x", f"not converged: {why}"))
    return tuple(found)
