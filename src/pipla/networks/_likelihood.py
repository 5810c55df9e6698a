"""The likelihood of a network: its latent weights are x, the rest of it is in theta."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla._trees import Path, put_part
from pipla.models.likelihoods.base import Likelihood, Scalar
from pipla.networks._families import Family, noise_of


class NetworkLikelihood(Likelihood):
    r"""$\sum_i \ell(f_{\theta, x}(\text{features}_i), \text{label}_i)$ of a network $f$.

    `theta["network"]` is the module with its latent weights (and all that is not a float) left out,
    `x` a dict of the latent weights by layer.
    """

    skeleton: PyTree  # what is not an array of floats: functions, integers
    features: PyTree  # the leading axis of each array counts the observations
    labels: Array
    family: Family
    paths: tuple[tuple[str, Path], ...] = eqx.field(static=True)  # where each layer is

    def network(self, theta: PyTree, x: PyTree) -> PyTree:
        """The module with its weights put back."""
        module = eqx.combine(theta["network"], self.skeleton)
        for name, path in self.paths:
            module = put_part(module, path, x[name])
        return module

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        module, noise = self.network(theta, x), noise_of(theta)

        def one(features: PyTree, label: Array) -> Scalar:
            return self.family.loss(module(features), label, noise)

        return jnp.sum(jax.vmap(one)(self.features, self.labels))

    def sets_theta(self) -> Path | None:
        return ("noise",) if self.family.learns_noise else None

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        noise = noise_of(theta)
        return {} if noise is None else {"noise": jnp.exp(noise)}

    def is_standardised(self) -> bool:
        """Whether features, and the responses of a regression, are of order 1 in every place."""
        numbers = [*jax.tree.leaves(self.features)]
        numbers += [self.labels] if self.family.learns_noise else []
        # Standardised ones have mean 0 and standard deviation 1, up to those left out or clipped.
        return all(
            float(jnp.max(jnp.abs(jnp.mean(leaf, axis=0)))) <= 1.0
            and float(jnp.max(jnp.std(leaf, axis=0))) <= 2.0
            and float(jnp.max(jnp.std(leaf, axis=0))) >= 0.5
            for leaf in numbers
            if jnp.issubdtype(leaf.dtype, jnp.floating)
        )

    def num_rows(self) -> int | None:
        return int(self.labels.shape[0])

    def rows(self, indices: Array) -> Self:
        some = jax.tree.map(lambda leaf: leaf[indices], (self.features, self.labels))
        return eqx.tree_at(lambda likelihood: (likelihood.features, likelihood.labels), self, some)
