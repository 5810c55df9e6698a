r"""The rule by which `pipla.networks.train` learns: kinetic particles, a pace for every layer.

The model is non-centred, $x = e^{2\alpha} z$. The particles have velocities $u$ (underdamped
Langevin): where the data are stiff in a few directions and the prior rules all others, as in every
wide layer, they need about the square root of the steps that an overdamped scheme needs. One step
of the symmetric splitting ABOBA (Leimkuhler and Matthews 2013), with one gradient $G$ of
$g_1$ and of the Moreau-Yosida envelope of the prior at smoothing $(\varepsilon_l/q)^2$, is

$$ z \mathrel{+}= \tfrac{\varepsilon_l}{2} u, \quad u \mathrel{-}= \tfrac{\varepsilon_l}{2} G(z),
   \quad u \leftarrow c_l u + \sqrt{1 - c_l^2}\, \xi, \quad
   u \mathrel{-}= \tfrac{\varepsilon_l}{2} G(z), \quad z \mathrel{+}= \tfrac{\varepsilon_l}{2} u $$

The curvature differs between layers by factors of hundreds, and changes as the network learns. So
each layer has a step of its own: with $K$ layers of stiffness $L_l$ (of the diagonal block of the
Hessian of $g_1$ in z) and a prior of squared length $s_l^2$,

$$ \varepsilon_l^2 = q^2 \min\Bigl(\frac{f}{K L_l},\; c\, s_l^2\Bigr), \qquad
   c_l = e^{-\varepsilon_l/s_l}. $$

In the metric of these steps the Hessian is at most $f$, wherever the scales go; the friction is
that of the prior's own pace. On all observations $q = 1$. On batches, of which M make an epoch,
$q < 1/M$: an epoch is shorter than a step on all observations, and the noise of the batches, each
of which comes once in an epoch and then once more in reverse, has cancelled before the particles
have moved by much (`Minibatch(symmetric=True)`). Longer steps would need so much friction against
that noise that weights stay where they are, and the scales with them.

The scales move in both coordinates by turns (Yu and Meng 2011): by their gradient at fixed z, which
is fast where the prior dominates, and towards the closed form at fixed x, which is fast where the
data do. Both have the same fixed point, the maximiser of

$$ \log p(y \mid \alpha) - \sum_l \frac{(\alpha_l - a_l)^2}{2 \tau^2}. $$

The second term, a weak normal prior around the scale $a_l$ of the fan-in, is there for what the
data leave open: where a network can separate its classes, the marginal likelihood does not fall as
the scale of its last layer grows, and where its units are nearly linear, only the product of the
scales of two layers matters.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from pipla import _trees
from pipla.algorithms._normals import normals_like, particle_normals
from pipla.algorithms.base import Algorithm, Info, number
from pipla.algorithms.langevin import first_state, optimizer_step
from pipla.models.model import Model, x_block
from pipla.models.noncentred import Reparametrised
from pipla.prox.base import Term
from pipla.prox.combine import On, Sum
from pipla.prox.strength import Strength

#: The factor by which a measured stiffness is forgotten from one measurement to the next.
MEMORY = 0.95
#: The steps between two measurements, each of one layer, in turn; the first steps, in which a
#: network changes fast, and each has one; and the measurements of each layer in the very first.
EVERY, EARLY, FIRST = 4, 200, 8
#: What a layer counts as stiffer than it was measured where its particles were too fast.
BRAKE = 1.25


class KineticState(eqx.Module):
    """Theta, the particles (z), their velocities, and what is known of the curvature."""

    theta: PyTree
    particles: PyTree
    velocities: PyTree
    warm: PyTree
    optimizer: PyTree
    directions: PyTree  # near the stiffest direction of each layer
    stiffness: PyTree  # one number per layer, in the units of x
    steps: Int[Array, ""]


class Kinetic(Algorithm[KineticState]):
    """The rule for a non-centred network.

    Arguments:
        prior: the term of the centred model, whose closed form pulls at the scales.
        optimizer: an optax transformation for theta.
        centre: $a_l$, a tree like `theta["scales"]`.
        share: $q$, the part of a step that each one is.
        fraction, longest: $f$ and $c$.
        pull: the part of the way to the closed form that the scales go in a whole step.
        width: $\\tau$.
    """

    prior: Term
    optimizer: Any
    centre: PyTree
    share: Array = eqx.field(converter=number, default=1.0)
    fraction: Array = eqx.field(converter=number, default=1.0)
    longest: Array = eqx.field(converter=number, default=0.03)
    pull: Array = eqx.field(converter=number, default=0.1)
    width: Array = eqx.field(converter=number, default=1.0)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> KineticState:
        velocities = normals_like(jax.random.key(0), particles)
        along = _trees.first(velocities)
        return KineticState(
            theta=theta,
            particles=particles,
            velocities=velocities,
            warm=model.warm_start(theta, particles),
            optimizer=first_state(self.optimizer, theta),
            directions=jax.tree.map(lambda leaf: leaf / _trees.norm(leaf), along),
            stiffness=jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), along),
            steps=jnp.zeros((), jnp.int32),
        )

    def step(
        self, key: Key[Array, ""], state: KineticState, model: Model
    ) -> tuple[KineticState, Info]:
        # One loop for the many measurements before the first move and for those on the way: the
        # product with the Hessian is compiled once, and not a second time in `init`.
        turn, turns = self._turns(state)
        state = jax.lax.fori_loop(
            turn, turn + turns, lambda n, s: self._measured(s, n, model), state
        )
        squares, pace = self._steps(state, model)
        length = jax.tree.map(lambda square: self.share * jnp.sqrt(square), squares)
        middle = _moved(state.particles, length, state.velocities)
        gradients = model.gradients(state.theta, middle)
        # Smoothed as on all observations: at the square of a step on a small batch, z - p would be
        # lost in rounding.
        point = model.solve(state.theta, middle, None, squares, state.warm)
        noise = particle_normals(key, middle, antithetic=True)

        total = jax.tree.map(
            lambda g, z, p, square: g + (z - p) / square,
            *(gradients.particles, middle, point.x, squares),
        )

        def kicked(u: Array, g: Array, e: Array, a: Array, xi: Array) -> Array:
            kick = 0.5 * e * g
            return jnp.exp(-a) * (u - kick) + jnp.sqrt(-jnp.expm1(-2 * a)) * xi - kick

        velocities = jax.tree.map(kicked, state.velocities, total, length, pace, noise)
        velocities, stiffness = _braked(velocities, state.stiffness)
        particles = _moved(middle, length, velocities)
        scales = _trees.add(gradients.theta["scales"], self._penalty(state.theta["scales"]))
        theta, optimizer = optimizer_step(
            self.optimizer, gradients.theta | {"scales": scales}, state.optimizer, state.theta
        )
        theta, particles = self._pulled(theta, particles, model)
        after = dataclasses.replace(
            state,
            theta=theta,
            particles=particles,
            velocities=velocities,
            stiffness=stiffness,
            warm=point.warm,
            optimizer=optimizer,
            steps=state.steps + 1,
        )
        return after, Info(gradients.theta, gradients.particles, jnp.max(point.gap))

    def with_theta(self, state: KineticState, theta: PyTree) -> KineticState:
        return dataclasses.replace(state, theta=theta)

    @property
    def learns_theta(self) -> bool:
        return True

    @property
    def label(self) -> str:
        return "Kinetic"

    def _steps(self, state: KineticState, model: Model) -> tuple[PyTree, PyTree]:
        """For each layer the square of a whole step in the units of z, and the friction."""
        to_z = model.particle_scale(state.theta, state.particles)  # e^{-4 alpha}
        units = model.nonsmooth.time_unit(None, _trees.first(state.particles))
        count = len(jax.tree.leaves(to_z))

        def square(stiffness: Array, scale: Array, unit: Array) -> Array:
            return jnp.minimum(self.fraction / (count * stiffness) * scale, self.longest * unit)

        squares = jax.tree.map(square, state.stiffness, to_z, units)
        return squares, jax.tree.map(lambda s, u: self.share * jnp.sqrt(s / u), squares, units)

    def _pulled(self, theta: PyTree, z: PyTree, model: Model) -> tuple[PyTree, PyTree]:
        """The scales nearer to their closed form at fixed x; z moves along."""
        assert isinstance(model.smooth, Reparametrised)
        bijector = model.smooth.bijector
        x = jax.vmap(bijector.forward, in_axes=(None, 0))(theta, z)
        best = self.prior.closed_form(theta, x)["scales"]
        # A Newton step from the closed form, where the curvature of the term is k d, to the best
        # penalised scale.
        curvature = self._curvatures(theta["scales"], _trees.first(z))
        best = jax.tree.map(
            lambda a, g, c: a - g / (c + 1 / self.width**2), best, self._penalty(best), curvature
        )
        scales = jax.tree.map(
            lambda old, new: old + self.share * self.pull * jnp.clip(new - old, -0.5, 0.5),
            theta["scales"],
            best,
        )
        moved = theta | {"scales": scales}
        return moved, jax.vmap(bijector.inverse, in_axes=(None, 0))(moved, x)

    def _penalty(self, scales: PyTree) -> PyTree:
        """The gradient of the prior of the scales."""
        return jax.tree.map(lambda a, c: (a - c) / self.width**2, scales, self.centre)

    def _curvatures(self, scales: PyTree, z: PyTree) -> PyTree:
        r"""Of each term in its $\alpha$, at its closed form.

        $2 d \alpha + e^{-2k\alpha} R/k$, with $R$ of homogeneity $k$, has the curvature $4 k d$.
        """
        powers = dict.fromkeys(scales, 1)
        for term in _terms(self.prior):
            powers[term.reach()[0][1][0]] = _homogeneity(term)
        return {name: 4.0 * powers[name] * z[name].size for name in scales}

    def _turns(self, state: KineticState) -> tuple[Array, Array]:
        """The number of the next measurement, and how many there are before this move."""
        early = state.steps < EARLY
        turns = (early | (state.steps % EVERY == 0)).astype(jnp.int32)
        all_layers = FIRST * len(jax.tree.leaves(state.stiffness))
        return (
            jnp.where(early, state.steps, state.steps // EVERY),
            jnp.where(state.steps == 0, all_layers, turns),
        )

    def _measured(self, state: KineticState, turn: Array, model: Model) -> KineticState:
        """One power iteration on the block of one layer, in the units of x, at one particle."""
        leaves, structure = jax.tree.flatten(state.directions)
        lengths = jax.tree.leaves(state.stiffness)
        which = (turn // len(leaves)) % _trees.num_particles(state.particles)
        x = jax.tree.map(lambda leaf: leaf[which], state.particles)
        root = jax.tree.map(jnp.sqrt, model.particle_scale(state.theta, state.particles))
        # A direction that is 0 in all layers but one: one program for the blocks of all of them.
        chosen = [turn % len(leaves) == i for i in range(len(leaves))]
        tangent = [jnp.where(here, leaf, 0) for here, leaf in zip(chosen, leaves, strict=True)]
        image = x_block(model, state.theta, x, root)(jax.tree.unflatten(structure, tangent))
        turned, measured = [], []
        for here, leaf, length, new in zip(
            chosen, leaves, lengths, jax.tree.leaves(image), strict=True
        ):
            size = _trees.safe_norm(new)
            good = here & (size > 0)
            turned.append(jnp.where(good, new / jnp.where(good, size, 1.0), leaf))
            measured.append(jnp.where(here, jnp.maximum(size, MEMORY * length), length))
        return dataclasses.replace(
            state,
            directions=jax.tree.unflatten(structure, turned),
            stiffness=jax.tree.unflatten(structure, measured),
        )


def _terms(term: Term) -> tuple[Term, ...]:
    return term.terms if isinstance(term, Sum) else (term,)


def _homogeneity(term: Term) -> int:
    """Of the penalty whose strength a term on one layer learns."""
    inner = term.term if isinstance(term, On) else term
    return inner.regulariser.homogeneity if isinstance(inner, Strength) else 1


def _moved(particles: PyTree, length: PyTree, velocities: PyTree) -> PyTree:
    """Half a step along the velocities."""
    return jax.tree.map(lambda z, e, u: z + 0.5 * e * u, particles, length, velocities)


def _braked(velocities: PyTree, stiffness: PyTree) -> tuple[PyTree, PyTree]:
    r"""Velocities no faster than chance allows, and layers that are stiffer where they were.

    $|u|^2/d$ is 1 on average, and hardly ever above $1.5 (1 + 4/\sqrt d)^2$ unless a step is
    longer than the curvature allows, or a particle falls down a steep slope.
    """

    def one(u: Array, known: Array) -> tuple[Array, Array]:
        axes = tuple(range(1, u.ndim))
        size = u[0].size
        most = 1.5 * (1 + 4 / size**0.5) ** 2
        heat = jnp.mean(jnp.square(u), axis=axes, keepdims=True)
        fast = heat > most
        # To the mean, not to the bound: short steps would leave them at it, too fast for ever.
        slower = jnp.where(fast, 1 / jnp.sqrt(jnp.where(fast, heat, 1)), 1)
        return u * slower, known * jnp.where(jnp.any(fast), BRAKE, 1.0).astype(u.dtype)

    both = jax.tree.map(one, velocities, stiffness)
    outer, inner = jax.tree.structure(velocities), jax.tree.structure((0, 0))
    return jax.tree.transpose(outer, inner, both)
