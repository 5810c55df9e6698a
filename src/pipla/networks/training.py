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
from pipla.algorithms import Algorithm, Kinetic, Minibatch, number
from pipla.diagnostics import ConvergenceWarning, warn_of
from pipla.engine.driver import check_surroundings
from pipla.engine.hooks import Callback
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.networks._explained import nothing
from pipla.networks._settling import Settled, burn_in, travelling, uncertain
from pipla.networks.modelling import NetworkModel
from pipla.networks.trained import ENDED, MOST_DRAWS, TrainedNetwork

#: The least and the most passes over all observations in a run whose length is left to it.
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
#: How long an epoch of batches is, in steps on all observations. As long as one: the noise of
#: batches that does not cancel in it made a scale of a network of Poisson counts 20 % too small.
EPOCH = 0.5
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
    the run lasts until their averages are known to a Monte-Carlo error of .025, and particles go
    where the others are. They have a weak prior, normal with standard deviation 1 in $\\alpha$
    around that of the fan-in, for what the data leave open. Everything else in the network is fixed
    when averages begin: all draws are of one posterior.

    Arguments:
        network: made by `pipla.networks.model`. It starts at `network.theta`.
        num_particles: an even number. What is not latent in the network is fitted to the particles
            there are: with thousands of such numbers, two particles are too few.
        num_steps: exactly so many, the averages being over the second half. By default from
            4000 to 8000, until scales and noise are known, the averages leaving out a quarter;
            with M batches M times as many.
        batch_size: the most observations per step, for less memory and quicker steps; by default
            all. Batches are of one size, at least half of this, that leaves few observations over.
            M batches need more than M times the steps, each less than an M-th as long, for the same
            answer: they save memory, not work. A `num_steps` of a few passes over the observations
            trains the rest of the network, but does not sample the weights, which is warned of.
        key: `jax.random.key(seed)`. Equal keys give equal networks.
        callbacks: as for `pipla.run`.
        progress: show a progress bar; by default only on a terminal.

    Returns:
        A `TrainedNetwork`. Its `status` and `findings` say whether the scales have settled and the
        particles mix.
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
    size = _even(rows, batch_size)
    batches = rows // size
    stop = None
    if num_steps is None:
        least, most = LEAST * batches, MOST * batches
        stop, pace = Settled(least), least // 2
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
            rule(network, num_steps=pace, batch_size=size),
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
    rate = NETWORK_RATE / batches**0.5
    standardised = network.likelihood.is_standardised()
    more = travelling(result.theta_trace["network"], *_full_pace(pace), rate, standardised)
    if stop is not None and stop.reason is None and result.status in ENDED:
        more += uncertain(result.theta_trace, result.burn_in)
    if result.status in ENDED:
        more += nothing(network, trained.theta, trained.particles)
    trained = dataclasses.replace(trained, findings=(*trained.findings, *more))
    warn_of(trained.findings)
    return trained


def rule(network: NetworkModel, *, num_steps: int, batch_size: int | None = None) -> Algorithm:
    """The algorithm that `train` runs on `network.noncentred.model`."""
    centre = {layer.name: jnp.asarray(layer.first_scale()) for layer in network.layers}
    batches = (network.likelihood.num_rows() or 1) // batch_size if batch_size else 1
    share = 1.0 if batches == 1 else EPOCH / batches
    optimizer = _optimizer(num_steps, batches)
    scheme = Kinetic(optimizer, centre=centre, share=number(share), prior="scales")
    if batch_size is None or batches == 1:
        return scheme
    return Minibatch(scheme, batch_size, symmetric=True)


def _even(rows: int, most: int | None) -> int:
    """The size of batches: of those from `most` down to its half, the one that leaves fewest over.

    What an epoch leaves out is noise that does not cancel in it.
    """
    if most is None or most == rows:
        return rows
    most = min(most, rows // 2)
    return min(range(most, (most - 1) // 2, -1), key=lambda size: rows % size)


@functools.cache  # a second network of the same shapes must not be another program
def _optimizer(num_steps: int, num_batches: int) -> Any:
    """Adam with falling steps: one pace for the scales and the noise, one for the network.

    Scales and noise move once in an epoch, by the mean gradient of its batches: Adam takes the
    noise of a batch for a gradient, and they would be far away before the weights, which need an
    epoch for a step, have moved. The network moves with every batch, $\\sqrt M$ times as far in an
    epoch of M batches as in a step on all observations.
    """
    from optax import MultiSteps, chain, multi_transform, scale_by_adam, scale_by_learning_rate

    first, share = SCALE_RATE

    def falling(n: Array) -> Array:
        settled = jnp.minimum(n * num_batches, SCALE_FALLS * num_steps)
        return first / (1 + settled / max(share * num_steps, 1.0)) ** 0.75

    def ending(n: Array) -> Array:
        left = 1 - n / (NETWORK_FIXED * num_steps)
        return NETWORK_RATE / num_batches**0.5 * jnp.clip(left / NETWORK_FALLS, 0, 1)

    def kind(theta: PyTree) -> PyTree:
        names = jax.tree.map(lambda _: "scales", theta)
        return names | {"network": jax.tree.map(lambda _: "network", theta["network"])}

    scales = chain(scale_by_adam(b1=0.5, b2=0.99), scale_by_learning_rate(falling))
    if num_batches > 1:
        scales = MultiSteps(scales, num_batches).gradient_transformation()
    # Gradients fall by orders as the noise is learned: a longer memory would stand still.
    moments = scale_by_adam(b2=0.99 ** (1 / num_batches))
    network = chain(moments, scale_by_learning_rate(ending))
    return multi_transform({"scales": scales, "network": network}, kind)


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
