r"""Which weights of a network matter least: scores that rank them, in every draw.

A score must compare weights of different layers. The magnitude does not: the learned scales of two
layers may differ by orders, and a limit for all of them takes a whole layer away.
`benchmarks/network_pruning.py` has the scores side by side.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla._trees import bounded_jit
from pipla.networks._layers import Layer
from pipla.networks._likelihood import NetworkLikelihood

#: What ranks the weights.
Criterion = Literal["sensitivity", "path", "magnitude"]
#: The most observations over which derivatives are averaged: with 64 the pruned networks of the
#: benchmark are hardly worse.
MOST_ROWS = 256
#: The most derivatives that are in memory at a time.
LARGEST_BLOCK = 1 << 23


def scores_of(
    criterion: Criterion,
    particles: dict[str, np.ndarray],
    *,
    theta: PyTree,
    seen: NetworkLikelihood | None,
    chain: tuple[Layer, ...],
) -> dict[str, np.ndarray]:
    """The score of each weight in each draw; see `TrainedNetwork.prune`.

    Arguments:
        criterion: which one.
        particles: the weights by layer; the leading axis counts the draws.
        theta: what else the network is made of.
        seen: observations; `None` where there are none, which `"sensitivity"` refuses.
        chain: the layers that follow one another, for `"path"`.
    """
    if criterion == "sensitivity":
        if seen is None:
            raise ValueError(
                "features and labels (X and y of an estimator) must be given: weights are ranked "
                "by what they do to the observations, and this network was loaded without those "
                "that it was trained on; or choose criterion='magnitude' or 'path'."
            )
        return _sensitivities(particles, theta, seen)
    if criterion == "path":
        return _paths(particles, chain)
    return {name: np.abs(weights) for name, weights in particles.items()}


def _sensitivities(
    particles: dict[str, np.ndarray], theta: PyTree, seen: NetworkLikelihood
) -> dict[str, np.ndarray]:
    r"""What the scores $f$ of the network lose without a weight, to first order.

    The score of a weight is $|w| \left(\tfrac1n \sum_i |\partial f(\text{features}_i)/\partial w|^2
    \right)^{1/2}$. One derivative per observation is enough: for signs $v_k$ at random,
    $(\sum_k v_k \partial f_k)^2$ has the mean $\sum_k (\partial f_k)^2$.
    """
    size = sum(weights[0].size for weights in particles.values())
    rows = seen.num_rows() or 1
    block = max(1, min(rows, MOST_ROWS, LARGEST_BLOCK // size))
    count = min(rows, MOST_ROWS) // block
    places = np.linspace(0, rows - 1, count * block).astype(int).reshape(count, block)
    keys = jax.random.split(jax.random.key(0), count)
    draws = len(next(iter(particles.values())))
    found = []
    for draw in range(draws):
        x = {name: jnp.asarray(weights[draw]) for name, weights in particles.items()}
        found.append(jax.tree.map(np.asarray, _effects(seen, theta, x, jnp.asarray(places), keys)))
    return {name: np.stack([each[name] for each in found]) for name in particles}


@bounded_jit()
def _effects(
    fixed: Any, arrays: Any, theta: PyTree, x: PyTree, places: Array, keys: Key[Array, " blocks"]
) -> PyTree:
    """The score of each weight of one draw, from blocks of observations."""
    likelihood: NetworkLikelihood = eqx.combine(fixed, arrays)

    def one(features: PyTree, key: Key[Array, ""]) -> PyTree:
        found, pull = jax.vjp(lambda x: likelihood.network(theta, x)(features), x)
        signs = jax.random.rademacher(key, found.shape, found.dtype)
        return jax.tree.map(jnp.square, pull(signs)[0])

    def add(total: PyTree, block: tuple[Array, Key[Array, ""]]) -> tuple[PyTree, None]:
        features = jax.tree.map(lambda leaf: leaf[block[0]], likelihood.features)
        squares = jax.vmap(one)(features, jax.random.split(block[1], len(block[0])))
        return jax.tree.map(lambda sum, new: sum + jnp.sum(new, axis=0), total, squares), None

    total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, x), (places, keys))
    return jax.tree.map(lambda w, square: jnp.abs(w) * jnp.sqrt(square / places.size), x, total)


def _paths(particles: dict[str, np.ndarray], chain: tuple[Layer, ...]) -> dict[str, np.ndarray]:
    r"""The magnitude of each weight times the norm of what leaves its unit.

    In a chain of layers $W_1, W_2, \ldots$ the score of $(W_l)_{ij}$ is $|(W_l)_{ij}| \cdot
    |(W_{l+1})_{\cdot i}|$, and its magnitude in the last one.
    """
    if not chain:
        raise ValueError(
            "criterion='path' needs layers that follow one another: an eqx.nn.MLP with all of "
            'its layers latent, or `chain=["first", "second"]`.'
        )
    scores = {name: np.abs(weights) for name, weights in particles.items()}
    for layer, after in itertools.pairwise(chain):
        leaving = np.linalg.norm(particles[after.name], axis=1)
        scores[layer.name] = scores[layer.name] * leaving[:, :, None]
    return scores


def largest(scores: dict[str, np.ndarray], fraction: float) -> dict[str, np.ndarray]:
    """In each draw, all but this fraction of the weights of all layers."""
    draws = len(next(iter(scores.values())))
    together = np.concatenate([one.reshape(draws, -1) for one in scores.values()], axis=1)
    count = round(fraction * together.shape[1])
    kept = np.ones(together.shape, bool)
    # By rank, not by a limit: weights that do nothing at all are equal, and must not all go.
    np.put_along_axis(kept, np.argsort(together, axis=1, kind="stable")[:, :count], False, axis=1)
    ends = np.cumsum([one[0].size for one in scores.values()])[:-1]
    pieces = np.split(kept, ends, axis=1)
    return {
        name: piece.reshape(one.shape)
        for (name, one), piece in zip(scores.items(), pieces, strict=True)
    }
