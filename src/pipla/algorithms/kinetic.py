r"""Underdamped Langevin with a step for every leaf of x; `pipla.networks.train` learns by it.

The model is non-centred, $x = e^{2\alpha} z$ for instance. The particles have velocities $u$: where
the data are stiff in a few directions and the prior rules all others, as in every wide layer of a
network, they need about the square root of the steps that an overdamped scheme needs. One step
of the symmetric splitting ABOBA (Leimkuhler and Matthews 2013), with one gradient $G$ of
$g_1$ and of the Moreau-Yosida envelope of the prior at smoothing $(\varepsilon_l/q)^2$, is

$$ z \mathrel{+}= \tfrac{\varepsilon_l}{2} u, \quad u \mathrel{-}= \tfrac{\varepsilon_l}{2} G(z),
   \quad u \leftarrow c_l u + \sqrt{1 - c_l^2}\, \xi, \quad
   u \mathrel{-}= \tfrac{\varepsilon_l}{2} G(z), \quad z \mathrel{+}= \tfrac{\varepsilon_l}{2} u $$

The curvature differs between the layers of a network by factors of hundreds, and changes as it
learns. So each leaf of x, such as a layer, has a step of its own: with $K$ leaves of stiffness
$L_l$ (of the diagonal block of the Hessian of $g_1$ in z) and a prior of squared length $s_l^2$,

$$ \varepsilon_l^2 = q^2 \min\Bigl(\frac{f}{K L_l},\; c\, s_l^2\Bigr), \qquad
   c_l = e^{-\varepsilon_l/s_l}. $$

In the metric of these steps the Hessian is at most $f$, wherever the scales go; the friction is
that of the prior's own pace. On all observations $q = 1$. On batches, of which M make an epoch,
$q < 1/M$: an epoch is shorter than a step on all observations, and the noise of the batches, each
of which comes once in an epoch and then once more in reverse, has cancelled before the particles
have moved by much (`Minibatch(symmetric=True)`). Longer steps would need so much friction against
that noise that weights stay where they are, and the scales with them.

The parameters $\alpha$ of the prior move in both coordinates by turns (Yu and Meng 2011): by their
gradient at fixed z, which is fast where the prior dominates, and towards the closed form at fixed
x, which is fast where the data do. Both have the same fixed point, the maximiser of

$$ \log p(y \mid \alpha) - \sum_l \frac{(\alpha_l - a_l)^2}{2 \tau^2}. $$

The second term, a weak normal prior around given values $a_l$, is there for what the data leave
open: where a network can separate its classes, the marginal likelihood does not fall as
the scale of its last layer grows, and where its units are nearly linear, only the product of the
scales of two layers matters.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms._normals import normals_like, particle_normals
from pipla.algorithms.base import Algorithm, Info, Number, number, register
from pipla.algorithms.langevin import check_optimizer, first_state, optimizer_step
from pipla.models.model import Model, x_block

#: The factor by which a measured stiffness is forgotten from one measurement to the next.
MEMORY = 0.95
#: One leaf's stiffness is measured every 4 steps, and at every step during the first 200; every
#: leaf's is measured 8 times before the first move.
EVERY, EARLY, FIRST = 4, 200, 8
#: The factor by which a leaf's stiffness grows where its velocities were too fast.
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


@register
class Kinetic(Algorithm[KineticState]):
    r"""Underdamped Langevin for a non-centred model, with a step for every leaf of x.

    Arguments:
        theta_optimizer: an optax transformation for theta.
        centre: $a$, a tree like the part of theta that is at `prior`; `None` without the normal
            prior.
        share: $q$, the part of a step that each one is.
        fraction, longest: $f$ and $c$.
        pull: the part of the way to the closed form that parameters go in a whole step.
        width: $\tau$.
        prior: where in theta the parameters of the non-smooth term are, all of which are
            logarithms; `None` if they are all of theta.
    """

    theta_optimizer: Any
    centre: PyTree = eqx.field(
        converter=lambda tree: jax.tree.map(number, tree), default=None, kw_only=True
    )
    share: Array = eqx.field(converter=number, default=1.0, kw_only=True)
    fraction: Array = eqx.field(converter=number, default=1.0, kw_only=True)
    longest: Array = eqx.field(converter=number, default=0.03, kw_only=True)
    pull: Array = eqx.field(converter=number, default=0.1, kw_only=True)
    width: Array = eqx.field(converter=number, default=1.0, kw_only=True)
    prior: str | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self) -> None:
        check_optimizer(self.theta_optimizer)
        for name, value in self.numbers().items():
            _checks.single(name, value)
            _checks.positive(name, value)

    def check(self, theta: PyTree, particles: PyTree) -> None:
        count = _trees.num_particles(particles)
        if count % 2:
            raise ValueError(f"Kinetic pairs the particles: their number is even, not {count}.")

    def rescaled(self, factor: Number) -> Self:
        return self.with_numbers(share=self.share * factor)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> KineticState:
        if model.smooth.noncentring() is None:
            raise TypeError(
                "Kinetic needs a non-centred model, `pipla.noncentred(model).model`, and particles "
                "from `pipla.noncentred(model).start(theta, particles)`."
            )
        velocities = normals_like(jax.random.key(0), particles)
        along = _trees.first(velocities)
        return KineticState(
            theta=theta,
            particles=particles,
            velocities=velocities,
            warm=model.warm_start(theta, particles),
            optimizer=first_state(self.theta_optimizer, theta),
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
        own = _trees.part("theta", gradients.theta, self.prior)
        own = _trees.add(own, self._penalty(_trees.part("theta", state.theta, self.prior)))
        gradient = _trees.put_part(gradients.theta, self.prior, own)
        theta, optimizer = optimizer_step(
            self.theta_optimizer, gradient, state.optimizer, state.theta
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

    def _steps(self, state: KineticState, model: Model) -> tuple[PyTree, PyTree]:
        """For each layer the square of a whole step in the units of z, and the friction."""
        to_z = model.particle_scale(state.theta, state.particles)  # e^{-4 alpha}
        units = model.nonsmooth.time_unit(None, _trees.first(state.particles))
        count = len(jax.tree.leaves(to_z))

        def square(stiffness: Array, scale: Array, unit: Array) -> Array:
            return jnp.minimum(self.fraction / (count * stiffness) * scale, self.longest * unit)

        def pace(square: Array, unit: Array) -> Array:
            # A prior without a length of its own counts as one that a longest step suits.
            share = jnp.where(jnp.isfinite(unit), square / unit, self.longest)
            return self.share * jnp.sqrt(share)

        squares = jax.tree.map(square, state.stiffness, to_z, units)
        return squares, jax.tree.map(pace, squares, units)

    def _pulled(self, theta: PyTree, z: PyTree, model: Model) -> tuple[PyTree, PyTree]:
        """The prior's parameters nearer to their closed form at fixed x; z moves along."""
        form = model.smooth.noncentring()
        assert form is not None  # or `init` would have refused
        bijector, term = form
        x = jax.vmap(bijector.forward, in_axes=(None, 0))(theta, z)
        own, best, curvature = (
            _trees.part("theta", tree, self.prior)
            for tree in (theta, term.closed_form(theta, x), term.closed_form_curvature(theta, x))
        )
        # A Newton step from the closed form to the best parameter under the normal prior.
        best = jax.tree.map(
            lambda a, g, c: a - g / (c + 1 / self.width**2), best, self._penalty(best), curvature
        )
        own = jax.tree.map(
            lambda old, new: old + self.share * self.pull * jnp.clip(new - old, -0.5, 0.5),
            own,
            best,
        )
        moved = _trees.put_part(theta, self.prior, own)
        return moved, jax.vmap(bijector.inverse, in_axes=(None, 0))(moved, x)

    def _penalty(self, own: PyTree) -> PyTree:
        """The gradient of the normal prior of the prior's parameters."""
        if self.centre is None:
            return _trees.zeros_like(own)
        return jax.tree.map(lambda a, c: (a - c) / self.width**2, own, self.centre)

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
