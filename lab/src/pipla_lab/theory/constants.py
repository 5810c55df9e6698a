"""What the bounds depend on: constants of a model, and the numbers of a run."""

from __future__ import annotations

import dataclasses
import math

import jax
from jaxtyping import PyTree

from pipla.models.model import Model, checked_point, without_fixed_leaves
from pipla.tuning.curvature import LocalGeometry
from pipla_lab import checks

#: The largest number that a count or a constant may be; beyond it the arithmetic overflows.
LARGEST = 1e100


@dataclasses.dataclass(frozen=True)
class Constants:
    r"""The constants of a model that the bounds depend on.

    Attributes:
        mu: $\mu$, the strong convexity of $g_1$ in $(\theta, x)$ [assumption_3].
        lipschitz: $L$, the Lipschitz constant of $\nabla g_1$ [assumption_1]; at least $\mu$.
        dim_theta, dim_x: $d_\theta$ and $d_x$.
        g2_lipschitz: $\ell = \|g_2\|_{\rm Lip}$ [assumption_1prime]; by default $\sqrt{d_x}$, that
            of the l1 norm.
        theta_in_g2: whether $g_2$ depends on theta; if not, two bounds are better.
        start: $\mathbb E[|Z_0 - z_\star|^2]^{1/2}$, the root mean square distance of the start from
            the minimiser of $U^\lambda$ (of $U$ for PIPGLA and PIPULA), where
            $|Z|^2 = |\theta|^2 + \frac1N\sum_i |X^i|^2$; by default
            $\sqrt{(d_\theta + d_x)/\mu}$, about that of a draw from the posterior.
        smoothing_rate: a $c$ of your own with
            $|\bar\theta_{\star,\lambda} - \bar\theta_\star| \le c\lambda$; a bound that uses it is
            as good as it is.
    """

    mu: float
    lipschitz: float
    dim_theta: int
    dim_x: int
    g2_lipschitz: float | None = None
    theta_in_g2: bool = True
    start: float | None = None
    smoothing_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("mu", "lipschitz"):
            self._set(name, _positive(name, getattr(self, name)))
        for name in ("dim_theta", "dim_x"):
            self._set(name, checks.integer(name, getattr(self, name), least=1))
        checks.boolean("theta_in_g2", self.theta_in_g2)
        if self.lipschitz < self.mu:
            raise ValueError(
                f"lipschitz must be at least mu, got lipschitz = {self.lipschitz:g} and "
                f"mu = {self.mu:g}: a function whose gradient is L-Lipschitz is not more convex."
            )
        if self.g2_lipschitz is None:
            self._set("g2_lipschitz", math.sqrt(self.dim_x))
        if self.start is None:
            self._set("start", math.sqrt((self.dim_theta + self.dim_x) / self.mu))
        for name in ("g2_lipschitz", "start", "smoothing_rate"):
            if getattr(self, name) is not None:
                self._set(name, _nonnegative(name, getattr(self, name)))

    def _set(self, name: str, value: float) -> None:
        object.__setattr__(self, name, value)

    @property
    def slope(self) -> float:
        r"""$\ell$ as a number."""
        assert self.g2_lipschitz is not None
        return self.g2_lipschitz

    @property
    def distance(self) -> float:
        r"""$\mathbb E[|Z_0 - z_\star|^2]^{1/2}$ as a number."""
        assert self.start is not None
        return self.start

    def stiffness(self, smoothing: float) -> float:
        r"""$L + 1/\lambda$, the Lipschitz constant of $\nabla U^\lambda$."""
        return self.lipschitz + 1 / smoothing

    def dimension(self, num_particles: float) -> float:
        r"""$d_x + d_\theta/N$, the dimension of all variables, per particle."""
        return self.dim_x + self.dim_theta / num_particles


@dataclasses.dataclass(frozen=True)
class Numbers:
    r"""The numbers of a run: $\gamma$, $\lambda$, $N$ and $n$.

    `smoothing=None` is that of PIPGLA and PIPULA, which take the step size.
    """

    step_size: float
    smoothing: float | None
    num_particles: int
    num_steps: int

    def __post_init__(self) -> None:
        for name in ("step_size", "smoothing", "num_particles"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        _nonnegative("num_steps", self.num_steps)

    def given_smoothing(self, algorithm: str) -> float:
        """The smoothing, which this algorithm needs."""
        if self.smoothing is None:
            raise ValueError(f"smoothing must be a number for {algorithm}, got None.")
        return self.smoothing


def measured(
    model: Model, theta: PyTree, particles: PyTree, start: float | None = None
) -> Constants:
    r"""The constants of a model, $\mu$ and $L$ measured at these particles.

    They are bounds for the whole model only where the Hessian of $g_1$ is the same everywhere
    (Gaussian likelihoods). Power iteration approaches $\mu$ from above and $L$ from below, within
    a few percent of $L$. `assumptions` says which of the assumptions hold.
    """
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    if start is not None:
        start = _nonnegative("start", start)
    curvature = LocalGeometry(model, theta, particles).curvature(1.0)
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    lipschitz = model.nonsmooth.regularity(theta, one).lipschitz
    if lipschitz is None:
        raise ValueError(
            f"{type(model.nonsmooth).__name__} has no Lipschitz constant, which every bound needs "
            "(A3, C1): constraints and squares have none, strengths e^theta neither."
        )
    if not float(curvature.smallest) > 0:
        raise ValueError(
            f"the smooth part is not strongly convex at these particles (mu = "
            f"{float(curvature.smallest):.4g}), which every bound needs (A4)."
        )
    return Constants(
        mu=float(curvature.smallest),
        lipschitz=max(float(curvature.largest), float(curvature.smallest)),
        dim_theta=_size(theta),
        dim_x=_size(one),
        g2_lipschitz=lipschitz,
        theta_in_g2=model.nonsmooth.uses_theta,
        start=start,
    )


def _size(tree: PyTree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _positive(name: str, value: float) -> float:
    found = _nonnegative(name, value)
    if found == 0:
        raise ValueError(f"{name} must be positive, got {value}.")
    return found


def _nonnegative(name: str, value: float) -> float:
    # Plans try thousands of numbers; the general check would convert each to an array.
    quick = type(value) is float or (type(value) is int and abs(value) <= LARGEST)
    found = float(value) if quick else checks.real(name, value)
    if not 0 <= found <= LARGEST:
        raise ValueError(f"{name} must be 0 or positive, and at most {LARGEST:g}, got {value}.")
    return found
