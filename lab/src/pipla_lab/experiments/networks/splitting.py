r"""A splitting for networks with a hard tanh: pre-activations become variables of their own.

The activation $h$ has kinks, and its composition with a linear map has no prox in closed form. With
pre-activations $u$ beside the weights (asymptotically exact data augmentation; Vono, Dobigeon and
Chainais 2019),

$$ U = \sum_i \ell_i\big(h(u_i)\, v\big) + \frac{|u - F w|^2}{2\rho^2} + \text{priors}, $$

the kinks are in one number each. What remains is smooth, and the density of $(w, v)$ tends to that
of the network as $\rho \to 0$.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from pipla.algorithms import PIPGLA
from pipla.engine.result import Status
from pipla.engine.save import Save
from pipla.models.model import Model
from pipla.prox import HardTanh
from pipla.prox.base import ClosedForm, Scalar
from pipla_lab.data.classification import Classification
from pipla_lab.experiments.networks import two_layers
from pipla_lab.experiments.networks.methods import Method, Trained, quiet_run, said, thinned
from pipla_lab.experiments.networks.rows import NetworkPreset

#: rho: pre-activations are of order 1, and the ramp of the hard tanh is 2 wide.
WIDTH = 0.3
#: The step in units of the inverse stiffness of each block. It widens the posterior by a share of
#: half of it, and alpha follows.
STEP = 0.2
#: The prior of w may become this many times as precise as at the start.
ROOM = 4.0
#: The part of a Newton step that theta goes per step.
THETA_PACE = 0.1
#: Kept states of the second half.
STATES = 10


class SplitHardTanh(ClosedForm):
    r"""$\sum_i \ell_i(h(u_i) v)$ with the prox of its linearisation, one number at a time.

    With $g = \nabla_a \sum_i \ell_i(a_i v)$ at $a = h(u)$, the prox of $g \cdot h(u)$ is that of
    `pipla.prox.HardTanh` with smoothing $\lambda |g|$, mirrored where $g < 0$. The misfit is smooth
    in v, which makes a gradient step. To first order in $\lambda$ this is the prox.

    x is `{"w", "v", "u"}`; w does not enter.
    """

    uses_theta: ClassVar[bool] = False
    finite: ClassVar[bool] = True

    labels: Int[Array, " images"] = eqx.field(converter=jnp.asarray)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return self._misfit(jnp.clip(x["u"], -1, 1), x["v"])

    def prox(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
    ) -> tuple[PyTree, PyTree]:
        lam = jax.tree.broadcast(lam_x, x)
        slope, slope_v = jax.grad(self._misfit, argnums=(0, 1))(jnp.clip(x["u"], -1, 1), x["v"])
        side = jnp.where(slope < 0, -1, 1).astype(slope.dtype)
        u = side * HardTanh().shrink(side * x["u"], lam["u"] * jnp.abs(slope))
        return theta, {"w": x["w"], "v": x["v"] - lam["v"] * slope_v, "u": u}

    def _misfit(self, a: Array, v: Array) -> Scalar:
        return two_layers.minus_log_likelihood(a @ v, self.labels)


class Paces(eqx.Module):
    """A metric that does not depend on where it is: one number per leaf of x."""

    numbers: dict[str, float]

    def __call__(self, theta: PyTree, x: PyTree) -> PyTree:
        return {name: jnp.asarray(self.numbers[name], leaf.dtype) for name, leaf in x.items()}


class Split(NamedTuple):
    r"""The model of w, v and u, with w in coordinates of unit stiffness.

    With $F = U S V^\top$, the potential of $w$ has the stiffness $s_k^2/\rho^2 + e^{-2\alpha}$
    along the columns of $V$, which differ by factors of hundreds. So $w = B \omega$ with
    $B = V (S^2/\rho^2 + c)^{-1/2}$, c a multiple of the prior's precision at the start: alpha
    follows the weights, and would not move if they did not.
    """

    model: Model
    basis: Float[np.ndarray, "inputs inputs"]

    def coordinates(self, w: np.ndarray) -> np.ndarray:
        """Those of weights (particles, inputs, units)."""
        return np.linalg.solve(self.basis, w)


def split_model(
    features: np.ndarray, labels: np.ndarray, precision: float, width: float = WIDTH
) -> Split:
    """The model; steps of the three blocks are in units of their stiffness.

    Arguments:
        precision: of the prior of w at the start.
        width: rho.
    """
    _, singular, rows = np.linalg.svd(features.astype(np.float64), full_matrices=True)
    squares = np.zeros(features.shape[1])
    squares[: len(singular)] = singular**2
    variance = 1 / (squares / width**2 + ROOM * precision)
    basis = rows.T * np.sqrt(variance)

    def smooth(theta: PyTree, x: PyTree, data: PyTree) -> Float[Array, ""]:
        features, variance = (data[name].astype(x["w"].dtype) for name in ("features", "variance"))
        residual = (x["u"] - features @ x["w"]) / width
        weights = x | {"w": jnp.sqrt(variance)[:, None] * x["w"]}  # of the same length as B w
        return jnp.sum(residual**2) / 2 + two_layers.normal_potential(theta, weights)

    metric = Paces({"w": 1.0, "v": 4.0 / len(labels), "u": width**2})
    data = {"features": features @ basis, "variance": variance}
    return Split(Model(smooth, SplitHardTanh(jnp.asarray(labels)), data, metric=metric), basis)


def splitting(num_particles: int | None = None) -> Method:
    """PIPGLA on the split model; Normal priors, whose scales move by their gradient."""

    def method(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
        features, labels = images.train
        count = min(num_particles or preset.train_particles, 10 * preset.train_particles)
        shape = (features.shape[1], preset.num_units, len(images.classes))
        _, particles = two_layers.start("paper", 0.0, count, shape, seed)
        dtype = particles["w"].dtype
        theta = {
            name: jnp.log(jnp.std(particles[layer])) for layer, name in two_layers.SCALES.items()
        }
        split = split_model(features, labels, float(jnp.exp(-2 * theta["alpha"])))
        particles["u"] = jnp.asarray(features, dtype) @ particles["w"]
        particles["w"] = jnp.asarray(split.coordinates(np.asarray(particles["w"])), dtype)
        pace = {
            name: THETA_PACE / (2 * size * STEP) for name, size in two_layers.sizes(*shape).items()
        }
        num_steps = preset.split_steps
        result = quiet_run(
            split.model,
            PIPGLA(STEP, theta_scale=pace, theta_noise=False),
            theta=theta,
            particles=particles,
            num_steps=num_steps,
            key=jax.random.key(seed),
            save=Save(moments_every=None, particles_every=max(1, num_steps // (2 * STATES))),
        )
        kept = result.saved_particles
        assert kept is not None
        weights = {
            name: np.asarray(kept[name])[-STATES:].reshape(-1, *kept[name].shape[2:])
            for name in two_layers.SCALES
        }
        weights["w"] = (split.basis @ weights["w"]).astype(weights["w"].dtype)
        return Trained(
            lambda features: two_layers.probabilities(weights, features, hard_tanh),
            result.seconds,
            weights=weights,
            theta={name: float(value) for name, value in result.theta.items()},
            theta_error={
                name: float(value) if np.isfinite(value) else None
                for name, value in result.theta_mcse.items()
            },
            trace=thinned(np.asarray(result.theta_trace["alpha"])),
            finite=result.status is not Status.NONFINITE,
            compile_seconds=result.compile_seconds,
            num_steps=result.num_steps,
            num_particles=count,
            says=said(result),
        )

    return method


def hard_tanh(x: Array) -> Array:
    """The paper's activation; its derivative is 0 or 1, and 1/2 at the kinks."""
    return jnp.clip(x, -1, 1)
