"""`train`: the weights are sampled, their scales, the noise and the rest of the network learned."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import _checks
from pipla.algorithms import Algorithm, Minibatch
from pipla.algorithms.base import number
from pipla.engine.diagnostics import ConvergenceWarning, warn_of
from pipla.engine.driver import check_surroundings
from pipla.engine.hooks import Callback
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.networks._rule import Kinetic
from pipla.networks._settling import Settled, burn_in, travelling, uncertain
from pipla.networks.modelling import NetworkModel
from pipla.networks.trained import MOST_DRAWS, TrainedNetwork

#: The least and the most steps of a run whose length is left to it, on all observations.
LEAST, MOST = 4000, 8000
#: The first step of Adam for the scales and the noise, which are logarithms, and the share $n_0$ of
#: the steps after which it falls, as $(1 + n/n_0)^{-3/4}$.
SCALE_RATE = (0.05, 0.05)
#: The share of the steps after which the step for scales and noise does not fall further: where
#: they move ever less, their averages converge no faster, but their errors are not seen.
SCALE_FALLS = 0.5
#: The step of Adam for the rest of the network, and the share of the steps after which the network
#: is fixed; the step falls to 0 in the last part of that time. What is kept comes later: weights
#: follow what else is in the network, and fit no other value of it.
NETWORK_RATE, NETWORK_FIXED, NETWORK_FALLS = 0.01, 0.5, 0.3
#: The most that the noise of batches may add to the variance of a step.
BATCH_NOISE = 0.1
#: The most bytes of weights that a run keeps.
LARGEST_DRAWS = 1 << 27


def train(
    network: NetworkModel,
    *,
    num_particles: int = 10,
    num_steps: int | None = None,
    batch_size: int | None = None,
    key: Key[Array, ""],
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainedNetwork:
    """Sample the latent weights and learn everything else, with nothing to choose.

    The weights, in non-centred form, are sampled by underdamped Langevin steps in antithetic pairs,
    with a step of its own for every layer that follows the curvature. The scales move by Adam with
    falling steps and, in turn, towards the closed form of the centred model; the noise of a
    regression and everything else in the network by Adam. The scales wander with the particles;
    the run lasts until their averages are known to a Monte-Carlo error of .025. They have a weak
    prior, normal with standard deviation 1 in $\\alpha$ around that of the fan-in, for what the
    data leave open. Everything else in the network is fixed when averages begin: all draws are of
    one posterior.

    Arguments:
        network: made by `pipla.networks.model`. It starts at `network.theta`.
        num_particles: an even number. What is not latent in the network is fitted to the particles
            there are: with thousands of such numbers, two particles are too few.
        num_steps: exactly so many, the averages being over the second half. By default from
            4000 to 8000, until scales and noise are known, the averages leaving out a quarter;
            more with batches, so that all observations are seen as often as in 1000 steps at least.
        batch_size: the number of observations per step; by default all. The noise of batches adds
            to that of the sampler, and steps are made as much shorter: batches save memory and
            time per step rather than work. What remains of it moves the scales, more so for small
            batches, and no warning says so: where scales matter, use all observations.
        key: `jax.random.key(seed)`. Equal keys give equal networks.
        callbacks: as for `pipla.run`.
        progress: show a progress bar; by default only on a terminal.

    Returns:
        A `TrainedNetwork`. Its `status` and `warnings` say whether the scales have settled.
    """
    check_surroundings()
    if not isinstance(network, NetworkModel):
        raise TypeError(
            f"network must be made by `pipla.networks.model`, got {type(network).__name__}."
        )
    num_particles = _checks.integer("num_particles", num_particles, least=2)
    if num_particles % 2:
        raise ValueError(f"num_particles must be even (they come in pairs), got {num_particles}.")
    _checks.random_key("key", key)
    rows = network.likelihood.num_rows() or 0
    if batch_size is not None:
        batch_size = _checks.integer("batch_size", batch_size, least=1, most=rows)
        batch_size = None if batch_size == rows else batch_size
    stop = None
    if num_steps is None:
        least = LEAST if batch_size is None else max(LEAST, 1000 * rows // batch_size)
        most, stop, pace = MOST * least // LEAST, Settled(least), least // 2
    else:
        most = least = pace = _checks.integer("num_steps", num_steps, least=2)
    for_start, for_run = jax.random.split(key)
    particles = network.particles(num_particles, for_start)
    every = _draws_every(pace, most, particles)
    form = network.noncentred
    # Adam mixes integers and floats, which "strict" would refuse.
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        # Of all of theta; `TrainedNetwork` judges the scales and the noise.
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = run(
            form.model,
            rule(network, num_steps=pace, batch_size=batch_size),
            theta=network.theta,
            particles=form.start(network.theta, particles),
            num_steps=most,
            burn_in=int(NETWORK_FIXED * pace),
            key=for_run,
            save=Save(moments_every=None, particles_every=every, quantity=form.back),
            callbacks=callbacks if stop is None else (*callbacks, stop),
            progress=progress,
            check=False,  # the rule measures the curvature itself, at every few steps
        )
    if stop is not None:
        result = _ended(result, stop)
    trained = TrainedNetwork.of(network, result)
    more = travelling(result.theta_trace["network"], *_full_pace(pace), NETWORK_RATE)
    if stop is not None and stop.reason is None and result.status is Status.COMPLETED:
        more += uncertain(result.theta_trace, result.burn_in)
    trained = dataclasses.replace(trained, warnings=(*trained.warnings, *more))
    warn_of(trained.warnings)
    return trained


def rule(network: NetworkModel, *, num_steps: int, batch_size: int | None = None) -> Algorithm:
    """The algorithm that `train` runs on `network.noncentred.model`."""
    centre = {layer.name: jnp.asarray(layer.first_scale()) for layer in network.layers}
    known = (network.model.nonsmooth, _optimizer(num_steps), centre)
    if batch_size is None:
        return Kinetic(*known)
    # The gradient of a batch of b of n rows has a variance of about (n/b) L beyond that of all
    # data. A kick adds its square, e² L n/b, to the variance 1 - c² of the noise.
    rows = network.likelihood.num_rows() or batch_size
    most = BATCH_NOISE * len(network.layers) * batch_size / rows
    scheme = Kinetic(*known, fraction=number(min(1.0, most)), friction=number(1.0))
    return Minibatch(scheme, batch_size)


@functools.cache  # a second network of the same shapes must not be another program
def _optimizer(num_steps: int) -> Any:
    """Adam with falling steps: one pace for the scales and the noise, one for the network."""
    from optax import chain, multi_transform, scale_by_adam, scale_by_learning_rate

    first, share = SCALE_RATE

    def falling(n: Array) -> Array:
        settled = jnp.minimum(n, SCALE_FALLS * num_steps)
        return first / (1 + settled / max(share * num_steps, 1.0)) ** 0.75

    def ending(n: Array) -> Array:
        left = 1 - n / (NETWORK_FIXED * num_steps)
        return NETWORK_RATE * jnp.clip(left / NETWORK_FALLS, 0, 1)

    def kind(theta: PyTree) -> PyTree:
        names = jax.tree.map(lambda _: "scales", theta)
        return names | {"network": jax.tree.map(lambda _: "network", theta["network"])}

    optimizers = {
        "scales": chain(scale_by_adam(b1=0.5, b2=0.99), scale_by_learning_rate(falling)),
        # Gradients fall by orders as the noise is learned: a longer memory would stand still.
        "network": chain(scale_by_adam(b2=0.99), scale_by_learning_rate(ending)),
    }
    return multi_transform(optimizers, kind)


def _full_pace(num_steps: int) -> tuple[int, int]:
    """The second half of the steps in which Adam moves the network at its full pace."""
    last = int((1 - NETWORK_FALLS) * NETWORK_FIXED * num_steps)
    return last // 2, last


def _ended(result: Result, stop: Settled) -> Result:
    """A run whose length was left to it: its averages leave out a part of what it became."""
    first = burn_in(result.num_steps)
    result = dataclasses.replace(result, burn_in=min(first, max(result.num_steps - 1, 0)))
    if stop.reason is None or result.status is not Status.STOPPED:
        return result
    message = f"completed {result.num_steps} steps: {stop.reason}"
    return dataclasses.replace(result, status=Status.COMPLETED, message=message)


def _draws_every(pace: int, most: int, particles: PyTree) -> int:
    """The steps between kept particles: twenty in half of `pace`, less if they are large."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(particles))
    after = pace - pace // 2
    number = int(np.clip(LARGEST_DRAWS * after // (most * size), 1, MOST_DRAWS))
    return max(1, after // number)
