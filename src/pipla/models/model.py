r"""A latent variable model $p_\theta(x, y) \propto e^{-U(\theta, x)}$ with $U = g_1 + g_2$.

A model evaluates its potential, its gradients and its proximal map over many particles. Step sizes
and randomness belong to the algorithms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import _checks, _trees
from pipla._trees import Fixed, Path
from pipla.models.fixed_leaves import Completed
from pipla.models.likelihoods import Flat, Likelihood, as_likelihood
from pipla.models.likelihoods.base import shape_of
from pipla.prox.base import Solution, Term, Zero

Smooth = Callable[[PyTree, PyTree, PyTree], Float[Array, ""]]
Metric = Callable[[PyTree, PyTree], PyTree]
#: Maps a direction in theta and one in x to the Hessian's product with them.
Product = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]


#: What theta's parts are called where likelihood and term learn one each and no names are given.
NOISE, PRIOR = "noise", "prior"


class Gradients(NamedTuple):
    """Gradients of the potential: the mean over particles for theta, one per particle for x."""

    theta: PyTree
    particles: PyTree


class Model(eqx.Module):
    r"""A smooth potential $g_1(\theta, x, \text{data})$ and a non-smooth term $g_2(\theta, x)$.

    Arguments:
        smooth: minus the log of the smooth part of the density, `smooth(theta, x, data)`, for
            one particle `x`; returns a scalar. A member of `pipla.likelihoods` or a function of
            your own. `None` when the whole potential is non-smooth. Theta and x may be modules,
            and are seen complete, with their functions and settings.
        nonsmooth: a term of `pipla.prox`, or `None`.
        data: what else `smooth` needs: any pytree of arrays.
        metric: a function `(theta, x) -> pytree` with one positive number for each leaf of x, by
            which algorithms multiply their step in that leaf. `noncentred` sets it, so that a
            step keeps its length in the units of x whatever theta is.
        longest_step: a function `(theta, x) -> pytree` with one number for each leaf of x, above
            which the algorithms of the Langevin family do not let the product of their step and
            the metric grow; infinite for leaves without a bound. `noncentred` sets it, so that no
            step is longer than the prior is wide.

    Where the likelihood learns a noise and the term learns theta too, and neither was given a part
    of theta, theta is a dict: `theta["noise"]` is the likelihood's, `theta["prior"]` the term's.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> model = pipla.Model(lambda theta, x, y: jnp.sum((x - y) ** 2) / 2,
        ...                     pipla.prox.LaplaceLocation(), data=jnp.ones(3))
        >>> model.potential(jnp.zeros(()), jnp.ones(3)).item()
        3.0
    """

    smooth: Likelihood
    nonsmooth: Term
    data: PyTree
    metric: Metric | None
    longest_step: Metric | None
    #: `pipla.models.hidden_scales.HiddenScales`, where `fit` has found some.
    scales: Any = eqx.field(default=None, kw_only=True)

    def __init__(
        self,
        smooth: Likelihood | Smooth | None,
        nonsmooth: Term | None = None,
        data: PyTree = None,
        metric: Metric | None = None,
        longest_step: Metric | None = None,
    ) -> None:
        if smooth is None and nonsmooth is None:
            raise ValueError(
                "smooth and nonsmooth are both None: the model is empty. Give `smooth`, a "
                "function (theta, x, data) -> scalar, a term of `pipla.prox`, or both."
            )
        if nonsmooth is not None and not isinstance(nonsmooth, Term):
            hint = "; call it: `L1()`, not `L1`" if isinstance(nonsmooth, type) else ""
            raise TypeError(
                f"nonsmooth must be a term of pipla.prox, got {_describe(nonsmooth)}{hint}."
            )
        for name, value in (("metric", metric), ("longest_step", longest_step)):
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be a function (theta, x), got {_describe(value)}.")
        # Lists of numbers and NumPy arrays become arrays once, here, and not at every call.
        _checks.resolution("data", data)  # before the conversion, which may lose the difference
        data = _checks.arrays("data", data)
        _checks.finite("data", data)
        self.smooth = as_likelihood(smooth)
        self.nonsmooth = Zero() if nonsmooth is None else nonsmooth
        self.data = data
        self.metric = metric
        self.longest_step = longest_step
        self.scales = None
        self._share_theta()

    def _share_theta(self) -> None:
        """Give the likelihood and the term a part of theta each, where both want the whole."""
        own = self.smooth.sets_theta()
        paths = [path for path, _ in self.nonsmooth.reach() if path is not None]
        if own is None or not any(_trees.overlap(own, path) for path in paths):
            return
        beside = self.smooth.at_theta(NOISE)
        taken = any(path[0] == NOISE for path in paths if path)
        if beside is None or taken:
            raise ValueError(
                "theta: the likelihood's own part (its noise) and a part that the non-smooth "
                "term learns are the same. Make theta a dict and give each its part, for "
                'example Gaussian(..., theta="noise") and `.on(theta="strength")`.'
            )
        self.smooth = beside
        if () in paths:
            self.nonsmooth = self.nonsmooth.on(theta=PRIOR)

    @property
    def fixed(self) -> Fixed:
        """The leaves of theta and x that are carried along; see `without_fixed_leaves`."""
        return self.smooth.fixed if isinstance(self.smooth, Completed) else Fixed()

    def smooth_value(self, theta: PyTree, x: PyTree) -> Float[Array, ""]:
        """$g_1$ at one particle."""
        theta, x = _checks.arrays("theta", theta), _checks.arrays("x", x)
        return self.smooth(theta, x, self.data)

    def potential(self, theta: PyTree, x: PyTree) -> Float[Array, ""]:
        """$U = g_1 + g_2$ at one particle."""
        return self.smooth_value(theta, x) + self.nonsmooth.value(theta, x)

    def gradients(
        self,
        theta: PyTree,
        particles: PyTree,
        *,
        nonsmooth_theta: bool = False,
        nonsmooth_x: bool = False,
    ) -> Gradients:
        r"""$\frac1N \sum_i \nabla_\theta$ and $\nabla_{x_i}$ of $g_1$, in one reverse pass.

        The sum over particles has both: its theta derivative is the sum wanted, and its
        derivative in $x_i$ is that of particle i alone. `nonsmooth_theta` and `nonsmooth_x` add
        the (sub)gradient of $g_2$ in theta and in x: hybrid schemes need the first, schemes
        without a proximal step need both.
        """

        def total(theta: PyTree, particles: PyTree) -> Float[Array, ""]:
            def one(x: PyTree) -> Float[Array, ""]:
                value = self.smooth_value(theta, x)
                if nonsmooth_theta or nonsmooth_x:
                    at_theta = theta if nonsmooth_theta else jax.lax.stop_gradient(theta)
                    at_x = x if nonsmooth_x else jax.lax.stop_gradient(x)
                    value = value + self.nonsmooth.value(at_theta, at_x)
                return value

            return jnp.sum(jax.vmap(one)(particles))

        theta, particles = _floats(theta, particles)
        for_theta, for_particles = jax.grad(total, argnums=(0, 1))(theta, particles)
        count = _trees.num_particles(particles)
        return Gradients(jax.tree.map(lambda g: g / count, for_theta), for_particles)

    def particle_scale(self, theta: PyTree, particles: PyTree) -> PyTree:
        """One number for each leaf of x: the metric at theta, or 1."""
        if self.metric is None:
            return jax.tree.map(lambda leaf: jnp.ones((), leaf.dtype), particles)
        return self.metric(theta, _trees.first(particles))

    def closed_form(self, theta: PyTree, particles: PyTree, penalty: PyTree = None) -> PyTree:
        r"""Theta where the mean potential over the particles is smallest, in closed form.

        The terms and the likelihood each set their own parts of theta; a likelihood without a
        closed form must not depend on theta. `penalty` is that of the `Solution` whose points the
        particles are, where it is known: it saves a nuclear norm its second decomposition.
        """
        theta, particles = _floats(theta, particles)
        best = self.smooth.closed_form(theta, particles)
        if best is None:
            if self.smooth.uses_theta(theta, _trees.first(particles), self.data):
                raise TypeError(
                    "theta_update='closed-form' needs a smooth part that does not depend on "
                    "theta, or has a best theta in closed form (pipla.likelihoods.Gaussian); use "
                    "'gradient'."
                )
            best = theta
        return self.nonsmooth.closed_form_at(best, particles, penalty)

    def warm_start(self, theta: PyTree, particles: PyTree) -> PyTree:
        """The warm start of the prox for every particle."""
        return jax.vmap(lambda x: self.nonsmooth.warm_start(theta, x))(particles)

    def solve(
        self, theta: PyTree, particles: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        """The joint prox of every particle at the shared theta: each returns a theta of its own.

        `lam_theta=None` keeps theta fixed.
        """
        return jax.vmap(self.nonsmooth.solve, in_axes=(None, 0, None, None, 0))(
            theta, particles, lam_theta, lam_x, warm
        )

    def check(self, theta: PyTree, particles: PyTree) -> None:
        """Evaluate shapes and dtypes once; raise an error that names what does not fit."""
        theta, particles = _floats(theta, particles)
        x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), particles)
        if not isinstance(self.smooth, Flat):
            value = _shape_of_result(self.smooth_value, theta, x)
            if not isinstance(value, jax.ShapeDtypeStruct) or value.shape != ():
                raise ValueError(
                    "smooth must return a scalar for one particle, got "
                    f"{_describe(value)}; sum over the data, and write smooth for a single x "
                    "(pipla adds the particle axis)."
                )
            if not jnp.issubdtype(value.dtype, jnp.floating):
                raise TypeError(
                    f"smooth must return a real floating scalar, got dtype {value.dtype}; "
                    "it is minus a log density."
                )
        value = _shape_of_result(self.nonsmooth.value, theta, x)
        if value.shape != ():
            raise ValueError(
                f"nonsmooth must have a scalar value, but {type(self.nonsmooth).__name__}.value "
                f"has shape {value.shape}."
            )
        lam = jax.ShapeDtypeStruct((), _trees.dtype(x))
        point = _shape_of_result(self.nonsmooth.prox, theta, x, lam, lam)
        given = jax.tree.map(shape_of, (theta, x))
        if jax.tree.map(shape_of, point) != given:
            raise ValueError(
                f"the prox of {type(self.nonsmooth).__name__} must keep the structure, shapes and "
                f"dtypes of (theta, x): expected {given}, got {jax.tree.map(shape_of, point)}."
            )
        self._require_particle_axis(theta, particles)

    def _require_particle_axis(self, theta: PyTree, particles: PyTree) -> None:
        """Numbers in a row may be particles, or one particle whose axis was forgotten.

        A function that broadcasts takes either, and would sample something else without a word.
        """
        number = _trees.num_particles(particles)
        if number == 1 or any(leaf.ndim > 1 for leaf in jax.tree.leaves(particles)):
            return
        try:
            as_one = _shape_of_result(self.potential, theta, particles)
        except Exception:  # a user's function may raise anything at a shape it is not made for
            return
        if as_one.shape == ():
            raise ValueError(
                f"particles must have a leading axis, got shape ({number},): for this model that "
                f"may be {number} particles of one number, or one particle of {number} numbers "
                f"without that axis; give shape ({number}, 1) or (num_particles, {number})."
            )


# The Hessian of g1 as a product, block by block: no matrix is formed. #


def hessian(model: Model, theta: PyTree, x: PyTree) -> Product:
    """The Hessian of g1 at one particle."""

    def gradient(theta: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        return jax.grad(model.smooth_value, argnums=(0, 1))(theta, x)

    return jax.linearize(gradient, theta, x)[1]


def x_block(model: Model, theta: PyTree, x: PyTree, root: PyTree) -> Callable[[PyTree], PyTree]:
    r"""$M^{1/2} \nabla^2_{xx} g_1\, M^{1/2}$, where `root` is $M^{1/2}$ (one number per leaf)."""
    product = jax.linearize(lambda x: jax.grad(model.smooth_value, argnums=1)(theta, x), x)[1]
    return lambda direction: _trees.multiply(root, product(_trees.multiply(root, direction)))


def theta_block(
    model: Model, theta: PyTree, x: PyTree, numbers: Sequence[int]
) -> Callable[[list[Array]], list[Array]]:
    """The block of the leaves of theta with these numbers, as a list."""
    leaves, structure = jax.tree.flatten(theta)

    def potential(part: list[Array]) -> Array:
        given = dict(zip(numbers, part, strict=True))
        mixed = [given.get(number, leaf) for number, leaf in enumerate(leaves)]
        return model.smooth_value(jax.tree.unflatten(structure, mixed), x)

    return jax.linearize(jax.grad(potential), [leaves[number] for number in numbers])[1]


def theta_parts(model: Model, theta: PyTree) -> list[tuple[int, ...]]:
    """The numbers of the leaves of theta, part by part; each part has one stiffness.

    Every leaf is a part by itself, except in a module: there the arrays that neither a term nor
    the likelihood sets are one part. A network has many leaves, and one power iteration for each
    of them would cost more than the step.
    """
    own = [path for path, _ in model.nonsmooth.reach() if path is not None]
    of_likelihood = model.smooth.sets_theta()
    return _trees.leaf_groups(theta, own if of_likelihood is None else [*own, of_likelihood])


# Where a run starts. #


def without_fixed_leaves(
    model: Model, theta: PyTree, particles: PyTree
) -> tuple[Model, PyTree, PyTree]:
    """Theta and the particles with their learned leaves only, and a model of these.

    `smooth` still sees theta and x complete: its likelihood puts back what was taken out, which
    `Model.fixed` holds. Fixed leaves of the particles have no particle axis. Where nothing is
    fixed, the model comes back as it is. The terms and the metric see `None` in the places of fixed
    leaves.
    """
    require_model(model)
    for name, tree in (("theta", theta), ("particles", particles)):
        _checks.leaves(name, tree)
    theta, of_theta = _trees.split(theta)
    particles, of_x = _trees.split(particles)
    if of_theta is not None or of_x is not None:
        for in_theta, in_x in model.nonsmooth.reach():
            if of_theta is not None and in_theta is not None:
                _require_learned("theta", theta, in_theta)
            if of_x is not None:
                _require_learned("x", particles, in_x)
        completed = Completed(model.smooth, Fixed(of_theta, of_x))
        model = _trees.put_part(model, "smooth", completed)
    return model, theta, particles


def _require_learned(name: str, tree: PyTree, path: Path) -> None:
    """A term must not address a leaf that was taken out."""
    if not jax.tree.leaves(_trees.part(name, tree, path)):
        raise ValueError(
            f"{'.'.join(map(str, (name, *path)))} belongs to a term, but is not learned: in a "
            "module only arrays of floats are; make it one, for example `jnp.asarray(0.0)`."
        )


def require_model(model: Any) -> None:
    """Raise a TypeError for anything but a model."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a pipla.Model, got {type(model).__name__}.")


def checked_point(model: Model, theta: PyTree, particles: PyTree) -> tuple[PyTree, PyTree]:
    """Theta and particles as float arrays of one dtype, where this model can be evaluated."""
    require_model(model)
    theta, particles = _floats(theta, particles)
    if not jax.tree.leaves(theta):
        raise ValueError("theta is empty; give a float, an array or a pytree of them.")
    _checks.finite("theta", theta)
    _checks.finite("particles", particles)
    theta, particles = _trees.one_dtype((theta, particles))
    model.check(theta, particles)
    return theta, particles


def _floats(theta: PyTree, particles: PyTree) -> tuple[PyTree, PyTree]:
    """Theta and particles as float arrays; the particles have a leading axis."""
    particles = _checks.floating("particles", particles)
    _checks.particle_count(particles)
    return _checks.floating("theta", theta), particles


def _shape_of_result(function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """`jax.eval_shape` without its cache.

    The cache compares bound methods, and so every number of two terms, on the device: three
    programs to compile. A new function is equal to no other.
    """
    return jax.eval_shape(lambda *values: function(*values), *arguments)


def _describe(value: Any) -> str:
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"shape {value.shape}"
    return value.__name__ if isinstance(value, type) else type(value).__name__
