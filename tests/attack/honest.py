"""The honest result that the attacks on files start from."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import pipla


def smooth(theta, x, data):
    return jnp.sum((x["w"] - theta["a"]) ** 2) / 2 + jnp.sum((x["w"] - data) ** 2) / 2


@functools.cache
def model():
    """The model; it is made when first needed, because processes that only save start no JAX."""
    return pipla.Model(smooth, data=jnp.linspace(-1.0, 1.0, 50))


def run(num_steps=12, key=None, num_particles=40, **options):
    """A short run whose result has every field."""
    return pipla.run(
        model(),
        pipla.IPLA(0.01),
        theta={"a": jnp.zeros(())},
        particles={"w": jnp.zeros((num_particles, 50))},
        num_steps=num_steps,
        key=jax.random.key(1) if key is None else key,
        **{"save": pipla.Save(2, 6), "burn_in": 4, "check": False, "progress": False} | options,
    )


def numbered(result, number):
    """The result with `number` in its message and in all its arrays, to notice a mixture."""

    def fill(leaf):
        return np.full(np.shape(leaf), number, np.asarray(leaf).dtype)

    names = ("theta_trace", "particles", "x_mean", "x_variance", "saved_particles")
    trees = {name: jax.tree.map(fill, getattr(result, name)) for name in names}
    return dataclasses.replace(result, message=str(number), algorithm=None, **trees)


def number_of(result):
    """The number of a result that `numbered` made; `None` for a mixture."""
    number = int(result.message)
    trees = (result.theta_trace, result.particles, result.x_mean, result.x_variance)
    leaves = jax.tree.leaves((*trees, result.saved_particles))
    return number if all(np.all(leaf == number) for leaf in leaves) else None
