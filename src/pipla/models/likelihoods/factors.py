r"""A matrix of low rank, seen in some of its entries: two factors with learned column scales."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from pipla import _checks, _trees
from pipla.models.likelihoods._entries import Entries, Side, arranged
from pipla.models.likelihoods.base import Likelihood, Scalar
from pipla.operators._arguments import integers

#: Standard deviations are learned down to this share of the spread of the values; below, the
#: potential of a perfect fit, or of an empty column, has no minimum.
SMALLEST_SCALE = 1e-3


class Factors(Likelihood):
    r"""Noisy entries of a matrix of low rank: normal factors with learned scales, and biases.

    $$ y_{ij} = \mu + a_i + b_j + \sum_k u_{ik} v_{jk} + \sigma n_{ij}, \qquad
       u_{ik}, v_{jk} \sim N(0, \tau_k^2), \quad a_i \sim N(0, \alpha^2), \quad
       b_j \sim N(0, \beta^2). $$

    The potential is minus the log of the joint density of the observed $y$ and of $U, V, a, b$.
    The columns of the two factors share the scale $\tau_k$: the marginal likelihood takes it
    towards 0 for columns that the data do not need, which chooses the rank. Rows of the matrix
    are independent given $V$ and $b$, columns given $U$ and $a$, and both are Gaussian: `gibbs`
    draws from these conditional distributions.

    x is a dict: `"rows"` holds $(U, a)$, one row each, `"columns"` holds $(V, b)$. Theta is a
    dict: `"mean"` is $\mu$; `"scale"` ($k$ numbers), `"row_scale"`, `"column_scale"` and
    `"noise"` are the logarithms of $\tau$, $\alpha$, $\beta$ and $\sigma$. Without biases, the
    last columns of the factors and the two scales are absent.

    Arguments:
        rows, columns: the indices of the observed entries; a pair may occur more than once.
        values: their values.
        shape: the numbers of rows and columns of the matrix.
        biases: whether there are $a$ and $b$.
    """

    observed: Entries
    floor: Float[Array, ""]
    shape: tuple[int, int] = eqx.field(static=True)
    biases: bool = eqx.field(static=True)

    def __init__(
        self, rows: Any, columns: Any, values: Any, shape: tuple[int, int], *, biases: bool = True
    ) -> None:
        _checks.boolean("biases", biases)
        found = _checks.real_array("values", values)
        _checks.finite("values", found)
        if found.ndim != 1 or not found.size:
            raise ValueError(f"values must be a vector of observations, got shape {found.shape}.")
        sizes = integers("shape", shape, least=1)
        if len(sizes) != 2:
            raise ValueError(f"shape must be two numbers, rows and columns; got {sizes}.")
        count, width = sizes
        of_rows = _indices("rows", rows, found.size, count)
        of_columns = _indices("columns", columns, found.size, width)
        self.observed = arranged(of_rows, of_columns, np.asarray(found), (count, width))
        spread = jnp.std(found)
        self.floor = SMALLEST_SCALE * jnp.where(spread > 0, spread, 1.0)
        self.shape = (count, width)
        self.biases = biases

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        log_noise = theta["noise"]
        squares = self.observed.sum_of_squares(self._residual(theta, x))
        value = 0.5 * squares * jnp.exp(-2 * log_noise) + self._total(log_noise) * log_noise
        for side in ("rows", "columns"):
            log_scale = self.log_scales(theta, side)
            scaled = x[side] * jnp.exp(-log_scale)[None]
            value = value + 0.5 * jnp.sum(scaled**2) + x[side].shape[0] * jnp.sum(log_scale)
        return value

    def entries(self, theta: PyTree, x: PyTree, rows: Array, columns: Array) -> Array:
        r"""The entries of the matrix with these indices, without noise."""
        left, right = x["rows"][rows], x["columns"][columns]
        if not self.biases:
            return theta["mean"] + jnp.sum(left * right, axis=-1)
        factors = jnp.sum(left[..., :-1] * right[..., :-1], axis=-1)
        return theta["mean"] + left[..., -1] + right[..., -1] + factors

    def log_scales(self, theta: PyTree, side: str) -> Array:
        """The logarithms of the prior standard deviations of the columns of `x[side]`."""
        if not self.biases:
            return theta["scale"]
        bias = theta["row_scale" if side == "rows" else "column_scale"]
        return jnp.concatenate([theta["scale"], bias[None]])

    def gibbs(self, theta: PyTree, x: PyTree, noise: PyTree) -> PyTree:
        r"""The rows given the columns, then the columns given these rows.

        Row $i$ has the precision $\Lambda = D_i^\top D_i/\sigma^2 + \operatorname{diag}(\tau^{-2})$
        with $D_i$ the rows $(v_j, 1)$ of the columns seen in it, and the mean $\Lambda^{-1} p$ with
        $p = D_i^\top (y_i - \mu - b)/\sigma^2$. With $\Lambda = R R^\top$ its draw is
        $R^{-\top}(R^{-1} p + \xi)$. One pass over the observations adds up all the matrices.
        """
        for side in ("rows", "columns"):
            pull, root = self.conditional(theta, x, side)
            half = self._solve(root, pull, transposed=False) + noise[side]
            x = {**x, side: self._solve(root, half, transposed=True)}
        return x

    def conditional(self, theta: PyTree, x: PyTree, side: Side) -> tuple[Array, Array]:
        """The precision times the mean of one side given the other, and its Cholesky factor."""
        design = x["columns" if side == "rows" else "rows"]
        offset = jnp.broadcast_to(theta["mean"], design.shape[:1])
        if self.biases:
            offset = offset + design[:, -1]
            design = design.at[:, -1].set(1.0)
        target = self.observed.less(side, offset)
        gram, pull = self.observed.normal_equations(side, design, target)
        weight = jnp.exp(-2 * theta["noise"])
        prior = jnp.exp(-2 * self.log_scales(theta, side))
        root = jnp.linalg.cholesky(weight * gram + jnp.diag(prior)[None])
        return weight * pull, root

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree:
        r"""Each scale is the root mean square of what it scales: of $(u_{\cdot k}, v_{\cdot k})$,
        $a$, $b$ and the residuals; $\mu$ is the mean of $y - a - b - UV^\top$.
        """
        residual = jax.vmap(lambda x: self._residual(theta, x))(particles)
        total = self._total(theta["mean"])
        shift = jnp.mean(jax.vmap(self.observed.sum)(residual)) / total
        squares = jax.vmap(lambda one: self.observed.sum_of_squares(one, shift))(residual)
        best = {**theta, "mean": theta["mean"] - shift}
        best["noise"] = self._log(jnp.mean(squares) / total)
        rows, columns = particles["rows"], particles["columns"]
        if self.biases:
            best["row_scale"] = self._log(jnp.mean(rows[..., -1] ** 2))
            best["column_scale"] = self._log(jnp.mean(columns[..., -1] ** 2))
            rows, columns = rows[..., :-1], columns[..., :-1]
        both = jnp.concatenate([rows, columns], axis=1)
        best["scale"] = self._log(jnp.mean(both**2, axis=(0, 1)))
        return best

    def interwoven(self, theta: PyTree, particles: PyTree) -> tuple[PyTree, PyTree]:
        r"""Theta's best move in non-centred coordinates, and the particles moved along.

        With $z_u = u/\tau$ and $z_v = v/\tau$ held fixed, the entries are linear in the weights
        $w_k = \tau_k^2$. The factors $c_k$ by which they change solve the least-squares problem
        of the residuals on $c_k u_{ik} v_{jk}$, with $|c - 1|^2$ added, so that a column that is
        lost in the noise does not jump. They are kept in $[\frac12, 2]$. The means of $a$ and $b$,
        which only their priors tell from $\mu$, move into $\mu$.
        """
        weight = jnp.exp(-2 * theta["noise"]) / _trees.num_particles(particles)
        rank = theta["scale"].size

        def normal_equations(x: PyTree) -> tuple[Array, Array]:
            left, right = x["rows"][:, :rank], x["columns"][:, :rank]
            gram, pull = self.observed.normal_equations("rows", right, self._residual(theta, x))
            return jnp.einsum("ik,il,ikl->kl", left, left, gram), -jnp.sum(left * pull, axis=0)

        gram, pull = jax.vmap(normal_equations)(particles)
        matrix = weight * jnp.sum(gram, axis=0) + jnp.eye(rank, dtype=weight.dtype)
        change = jnp.linalg.solve(matrix, weight * jnp.sum(pull, axis=0))
        # Half a Newton step, which noise and the other half of the move cannot make unstable.
        factor = jnp.sqrt(jnp.clip(1 + 0.5 * change, 0.5, 2.0))
        least = jnp.log(self.floor).astype(factor.dtype)
        moved = {**theta, "scale": jnp.maximum(theta["scale"] + jnp.log(factor), least)}
        factor = jnp.exp(moved["scale"] - theta["scale"])
        after = {}
        for side, x in particles.items():
            after[side] = x.at[..., :rank].multiply(factor[None, None])
            if self.biases:
                shift = jnp.mean(x[..., -1])
                after[side] = after[side].at[..., -1].add(-shift)
                moved["mean"] = moved["mean"] + shift
        return moved, after

    def log_signal(self, theta: PyTree) -> Array:
        r"""How strong each column is, in units of the detection limit, as a logarithm.

        With $N$ entries of an $n \times m$ matrix observed in noise $\sigma$, a part of rank one
        whose entries have the variance $\tau^4$ leaves the bulk of the singular values if
        $N \tau^4/\sqrt{nm} > \sigma^2$ (Baik, Ben Arous and Péché 2005).
        """
        share = self._total(theta["scale"]) / math.sqrt(self.shape[0] * self.shape[1])
        return 4 * theta["scale"] - 2 * theta["noise"] + jnp.log(share)

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        return {"noise sd": jnp.exp(theta["noise"])}

    @staticmethod
    def _solve(root: Array, right: Array, *, transposed: bool) -> Array:
        """The solutions of lower triangular systems, or of their transposes."""
        return jax.lax.linalg.triangular_solve(
            root, right[..., None], left_side=True, lower=True, transpose_a=transposed
        )[..., 0]

    def _residual(self, theta: PyTree, x: PyTree) -> PyTree:
        """The entries without noise, minus the observations, arranged as these are."""
        left, right = x["rows"], x["columns"]
        if self.biases:  # u·v + a + b is the product of (u, a, 1) and (v, 1, b)
            one, other = (jnp.ones_like(side[:, :1]) for side in (left, right))
            left = jnp.concatenate([left, one], axis=1)
            right = jnp.concatenate([right[:, :-1], other, right[:, -1:]], axis=1)
        return self.observed.residual(left, right, theta["mean"])

    def _total(self, like: Array) -> Array:
        return self.observed.total.astype(like.dtype)

    def _log(self, variance: Array) -> Array:
        """Half the logarithm of a variance, which the floor keeps finite."""
        return 0.5 * jnp.log(jnp.maximum(variance, self.floor.astype(variance.dtype) ** 2))


def _indices(name: str, given: Any, count: int, limit: int) -> np.ndarray:
    """Integers from 0 to `limit`, as many as there are values."""
    found = _checks.on_host(name, given)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be {count} integers, one for each of the values, got shape "
            f"{found.shape} of dtype {found.dtype}."
        )
    if found.min() < 0 or found.max() >= limit:
        raise ValueError(
            f"{name} must be from 0 to {limit - 1}, which the shape says, got {found.min()} to "
            f"{found.max()}."
        )
    return found.astype(np.int32)
