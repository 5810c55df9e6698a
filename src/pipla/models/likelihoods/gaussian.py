r"""Gaussian observations of a linear map, and what can be done with them exactly."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla import _checks, _trees
from pipla._trees import Address, Path
from pipla.models.likelihoods.base import Likelihood, Scalar
from pipla.operators.adjoint import check_adjoint
from pipla.operators.eigenbasis import Eigenbasis, mean_decay
from pipla.operators.linear import Dense, Operator, require_operator
from pipla.operators.polynomials import applied, largest_eigenvalue
from pipla.operators.sparse import Sparse, is_sparse
from pipla.prox._arguments import check_address


class Gaussian(Likelihood):
    r"""$g_1(\theta, x) = |Hx - y|^2 / (2\sigma^2)$, and with a learned noise $+\, m \log\sigma$.

    Gaussian observations of a linear map, $y = Hx + \sigma n$: `Gaussian(features, y)` is linear
    regression, `Gaussian(blur, image, 1.4)` an image that was blurred. The flow of the likelihood
    alone is exact (`flow`): in the eigenbasis of the operator where it has one, and elsewhere by
    polynomials of $H^\top H$, to a percent of a standard deviation per step.

    $m$ is the number of observations. Where a `Mask` ends the operator and is 0, an observation is
    missing: it is not counted and its value, which may be NaN, is ignored.

    Arguments:
        operator: $H$: a matrix of numbers or a sparse one, with a row per observation and a column
            per element of x, or one of `pipla.operators`.
        observations: $y$.
        noise: $\sigma$, the standard deviation; `None` learns it: theta then holds $\log\sigma$. An
            array that broadcasts to the observations gives each its own, for operators that have
            a matrix or act on elements (`Identity`, `Mask`, `Select`, `Dense`, `Sparse`).
        theta: which part of theta is $\log\sigma$; only for learned noise. By default it is all of
            theta, or beside a term that learns theta as well, `theta["noise"]` (see `Model`).

    Example:
        >>> import numpy as np, pipla
        >>> features, y = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), np.array([1.0, 2.0, 2.0])
        >>> model = pipla.Model(pipla.likelihoods.Gaussian(features, y), pipla.prox.LaplaceScale())
        >>> theta = {"prior": 0.0, "noise": 0.0}  # the log of the noise; pipla.fit can start it
        >>> model.potential(theta, np.array([1.0, 1.0])).item()
        2.0
    """

    bounded: ClassVar[bool] = True

    # With one noise per observation, operator and observations are divided by it.
    operator: Operator
    observations: Array
    noise: Array | None
    count: Array  # of observations that are not missing
    basis: Eigenbasis | None
    backprojected: Array | None  # the coordinates of H'y
    largest: Array | None  # a bound on the eigenvalues of H'H where there is no basis
    theta: Address | None = eqx.field(static=True)

    def __init__(
        self, operator: Any, observations: Any, noise: Any = None, *, theta: Address | None = None
    ) -> None:
        operator = _as_operator(operator)
        _checks.positive("noise", noise)
        check_address("theta", theta)
        float_type = jnp.result_type(float)
        values = _checks.real_array("observations", observations)
        given = observations if isinstance(observations, np.ndarray) else values
        _checks.resolution("observations", given)  # the conversion may have lost the difference
        shape = check_shapes(operator, values)
        check_adjoint(operator, shape, values.shape)
        seen = operator.seen()
        if seen is not None:
            seen = jnp.broadcast_to(seen, values.shape)
            if _checks.is_concrete(seen) and not bool(jnp.any(seen)):
                raise ValueError("the mask of the operator is 0 everywhere: no data are seen.")
            values = jnp.where(seen, values, 0.0)
        _checks.finite("observations", values)
        self.count = jnp.asarray(values.size if seen is None else jnp.sum(seen), float_type)
        self.noise = None if noise is None else _checks.real_array("noise", noise)
        if self.noise is not None and self.noise.ndim:
            operator, values = _whitened(operator, values, self.noise)
        self.operator = operator
        self.observations = values
        self.theta = theta
        self.basis = operator.eigenbasis()
        self.backprojected = self.largest = None
        if self.basis is not None:
            self.backprojected = self.basis.forward(operator.adjoint(self.observations))
        else:
            self.largest = largest_eigenvalue(lambda v: operator.adjoint(operator.apply(v)), shape)

    def __call__(self, theta: PyTree, x: Array, data: PyTree = None) -> Scalar:
        scaled = self._residual(x) / self._unit(theta).astype(x.dtype)
        value = 0.5 * jnp.sum(scaled**2)
        if self.noise is None:
            log_noise = _trees.part("theta", theta, self.theta)
            value = value + self.count.astype(value.dtype) * log_noise
        return value

    def std(self, theta: PyTree) -> Array:
        r"""$\sigma$, known or learned."""
        if self.noise is not None:
            return self.noise
        return jnp.exp(_trees.part("theta", theta, self.theta))

    def uses_theta(self, theta: PyTree, x: PyTree, data: PyTree = None) -> bool:
        return self.noise is None

    def sets_theta(self) -> Path | None:
        return None if self.noise is not None else _trees.keys_of(self.theta)

    def at_theta(self, address: Address) -> Self | None:
        if self.noise is not None or self.theta is not None:
            return None
        return _trees.put_part(self, "theta", address)

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        if self.noise is not None:
            return {}
        prefix = ".".join(map(str, _trees.keys_of(self.theta)))
        return {f"{prefix}: noise sd" if prefix else "noise sd": self.std(theta)}

    def flow(self, theta: PyTree, x: Array, time: Array, noise: Array) -> Array | None:
        r"""With $a$ the eigenvalues of $H^\top H/\sigma^2$ and $F$ its basis, exactly

        $$ F X_h = e^{-ah} F X_0 + \frac{1 - e^{-ah}}{a} \frac{F H^\top y}{\sigma^2}
           + \sqrt{\frac{1 - e^{-2ah}}{2ah}}\; F \sqrt{2h}\,\xi, $$

        where $F\xi$ is replaced by numbers of the same distribution (`Eigenbasis.white`). Without a
        basis, with $A = H^\top H/\sigma^2$ and both functions of it by polynomials,

        $$ X_h = X_0 - \frac{1 - e^{-Ah}}{A} \nabla g_1(X_0)
           + \sqrt{\frac{1 - e^{-2Ah}}{2Ah}}\; \sqrt{2h}\,\xi. $$
        """
        weight = time / self._unit(theta).astype(x.dtype) ** 2
        if self.basis is None or self.backprojected is None:
            if self.largest is None:
                return None
            longest = weight * self.largest.astype(x.dtype)
            functions = (
                (lambda a: mean_decay(weight * a), longest),
                (lambda a: jnp.sqrt(mean_decay(2 * weight * a)), jnp.sqrt(2 * longest)),
            )
            operator = self.operator
            drift, pushed = applied(
                lambda v: operator.adjoint(operator.apply(v)),
                self.largest,
                functions,
                (operator.adjoint(self._residual(x)), noise),
            )
            return x - weight * drift + pushed
        basis = self.basis
        exponent = weight * basis.eigenvalues.astype(x.dtype)
        kept = basis.times(jnp.exp(-exponent), basis.forward(x))
        noisy = basis.times(jnp.sqrt(mean_decay(2 * exponent)), basis.white(noise))
        pulled = basis.times(weight * mean_decay(exponent), self.backprojected.astype(kept.dtype))
        return basis.inverse(kept + noisy + pulled)

    def resolvent(self, theta: PyTree, x: Array, lam: Array) -> Array | None:
        r"""The proximal map: $F^{-1}(1 + \lambda a)^{-1}(Fx + \lambda FH^\top y/\sigma^2)$."""
        if self.basis is None or self.backprojected is None:
            return None
        basis, weight = self.basis, lam / self._unit(theta).astype(x.dtype) ** 2
        start = basis.forward(x)
        pulled = start + basis.times(weight, self.backprojected.astype(start.dtype))
        return basis.inverse(
            basis.times(1 / (1 + weight * basis.eigenvalues.astype(x.dtype)), pulled)
        )

    def stiffness(self, theta: PyTree) -> Array | None:
        largest = self.largest
        if self.basis is not None:
            largest = jnp.max(self.basis.eigenvalues)
        if largest is None:
            return None
        unit = self._unit(theta)
        return largest.astype(unit.dtype) / unit**2

    def closed_form(self, theta: PyTree, particles: Array) -> PyTree:
        r"""Theta with the best noise for the particles: $\sigma^2 = \overline{|HX - y|^2}/m$."""
        if self.noise is not None:
            return theta
        squares = jax.vmap(lambda x: jnp.sum(self._residual(x) ** 2))(particles)
        log_noise = 0.5 * jnp.log(jnp.mean(squares) / self.count.astype(squares.dtype))
        return _trees.put_part(theta, self.theta, log_noise)

    def num_rows(self) -> int | None:
        return self.operator.matrix.shape[0] if isinstance(self.operator, Dense) else None

    def rows(self, indices: Array) -> Self | None:
        """The likelihood of these observations, for `operators.Dense`; it has no exact flow."""
        if not isinstance(self.operator, Dense):
            return None
        noise = self.noise
        if noise is not None and noise.ndim:
            noise = jnp.broadcast_to(noise, self.observations.shape)[indices]
        return eqx.tree_at(
            lambda m: (
                m.operator.matrix,
                m.observations,
                m.noise,
                m.count,
                m.basis,
                m.backprojected,
            ),
            self,
            (
                self.operator.matrix[indices],
                self.observations[indices],
                noise,
                jnp.asarray(indices.size, self.count.dtype),
                None,
                None,
            ),
            is_leaf=lambda leaf: leaf is None,
        )

    def surrogate(self, theta: PyTree, x: Array) -> Eigenbasis | None:
        """The basis of $H^\\top H/\\sigma^2$, which is exact."""
        if self.basis is None:
            return None
        unit = self._unit(theta).astype(x.dtype)
        eigenvalues = self.basis.eigenvalues.astype(x.dtype) / unit**2
        return eqx.tree_at(lambda basis: basis.eigenvalues, self.basis, eigenvalues)

    def _unit(self, theta: PyTree) -> Array:
        """The standard deviation of the observations as they are stored."""
        std = self.std(theta)
        return std if std.ndim == 0 else jnp.ones((), std.dtype)

    def _residual(self, x: Array) -> Array:
        return self.operator.apply(x) - self.observations.astype(x.dtype)


def _as_operator(given: Any) -> Operator:
    """An operator as it is; a matrix, dense or sparse, as one."""
    if isinstance(given, Operator):
        return given
    if is_sparse(given):
        return Sparse(given)
    if isinstance(given, type) or callable(given) or isinstance(given, str) or given is None:
        require_operator("operator", given)
    matrix = _checks.real_array("operator", given)
    if matrix.ndim != 2:
        raise ValueError(
            "operator must be one of pipla.operators or a matrix with two axes, (observations, "
            f"elements of x), got shape {matrix.shape}; for denoising give operators.Identity()."
        )
    return Dense(matrix)


def check_shapes(operator: Operator, observations: Any) -> tuple[int, ...]:
    """The operator makes observations of this shape, from an x of the shape that is returned."""
    try:
        back = jax.eval_shape(operator.adjoint, observations)
        made = jax.eval_shape(operator.apply, back)
    except jax.errors.TracerArrayConversionError as error:
        raise TypeError(
            f"operator: apply or adjoint of {type(operator).__name__} calls NumPy or another "
            "library, which cannot be compiled; write both with jax.numpy, or give them to "
            "pipla.operators.FromNumPy(apply, adjoint, shape)."
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"observations of shape {observations.shape} do not fit the operator: its adjoint, or "
            f"apply after it, says: {str(error).splitlines()[0]}"
        ) from error
    if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in (back, made)):
        raise TypeError(
            "operator must map real numbers to real numbers, but apply or adjoint returns complex "
            "ones; stack their real and imaginary parts."
        )
    if made.shape != observations.shape:
        raise ValueError(
            f"observations have shape {observations.shape}, but the operator makes "
            f"observations of shape {made.shape} from an x of shape {back.shape}."
        )
    return back.shape


def _whitened(operator: Operator, observations: Array, noise: Array) -> tuple[Operator, Array]:
    """Operator and observations divided by one noise per observation."""
    try:
        fits = np.broadcast_shapes(noise.shape, observations.shape) == observations.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"noise must be one number, or broadcast to the observations' shape "
            f"{observations.shape}, got shape {noise.shape}."
        )
    noise = jnp.broadcast_to(noise, observations.shape)
    divided = operator.whitened(noise)
    if divided is None:
        raise ValueError(
            f"noise must be one number for {type(operator).__name__}: with one noise per "
            "observation its eigenbasis is not known. Give observations / noise, "
            "operators.Mask(1 / noise) @ operator and noise=1; such a model has no exact flow."
        )
    return divided, observations / noise
