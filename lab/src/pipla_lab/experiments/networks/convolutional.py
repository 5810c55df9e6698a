"""A network with deterministic convolutions and sampled linear layers, and its training."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from pipla import networks
from pipla.engine.hooks import Every, View
from pipla.engine.result import Status
from pipla_lab.data.classification import Classification, Images
from pipla_lab.data.downloads import VEHICLE_NAMES
from pipla_lab.experiments.networks import measures
from pipla_lab.experiments.networks.convolution import Convolution, pooled
from pipla_lab.experiments.networks.methods import Trained, said
from pipla_lab.experiments.networks.recommended import learned_scales, quiet_train
from pipla_lab.experiments.networks.rows import NetworkPreset

#: The paper's linear layers.
WIDTHS = (512, 256, 128)
#: Adam: its step, images per step, the share of the images it is judged by, and passes without
#: progress after which it stops.
STEP, BATCH, HELD_OUT, PATIENCE = 1e-3, 50, 0.15, 15
#: Looks at the held-out images without progress after which the convolutions are fixed.
WAITS = 3


class Convolutions(eqx.Module):
    """Two convolutions with pooling, 3 × 32 × 32 pixels to 400 numbers.

    The paper's list has one pooling; 16 × 5 × 5 inputs of the first linear layer need two.
    """

    layers: tuple[Convolution, ...]

    def __init__(self, *, key: Key[Array, ""]) -> None:
        first, second = jax.random.split(key)
        self.layers = (
            Convolution(3, 6, 5, block=4, key=first),
            Convolution(6, 16, 5, block=10, key=second),
        )

    def __call__(self, image: Float[Array, "3 32 32"]) -> Float[Array, " 400"]:
        pixels = jnp.moveaxis(image, 0, -1)
        for layer in self.layers:
            pixels = pooled(layer(pixels))
        return pixels.ravel()


class Convolutional(eqx.Module):
    """The paper's network: two convolutions with pooling, and four linear layers with SELU.

    Where the convolutions are fixed, `convolutions` is the identity, and the network is called on
    their output.
    """

    convolutions: Convolutions | eqx.nn.Identity
    linear: tuple[eqx.nn.Linear, ...]

    def __init__(self, classes: int, widths: Sequence[int], *, key: Key[Array, ""]) -> None:
        keys = iter(jax.random.split(key, 2 + len(widths)))
        self.convolutions = Convolutions(key=next(keys))
        sizes = (16 * 5 * 5, *widths, classes)
        self.linear = tuple(
            eqx.nn.Linear(a, b, key=next(keys)) for a, b in itertools.pairwise(sizes)
        )

    def __call__(self, image: Float[Array, "..."]) -> Float[Array, " classes"]:
        hidden = self.convolutions(image)
        for layer in self.linear[:-1]:
            hidden = jax.nn.selu(layer(hidden))
        return self.linear[-1](hidden)


@dataclasses.dataclass(frozen=True)
class VehiclePreset(NetworkPreset):
    """How much is run.

    Attributes:
        batch: images per step while the convolutions are learned.
        train_steps: the steps of either part, of the first one at most.
        watched_every: steps between looks at the images that are held out.
        fixed_batch: images per step once the convolutions are fixed; `None` for all.
        widths: units of the linear layers.
        epochs: the most passes of Adam over the images.
    """

    batch: int = 100
    watched_every: int = 25
    fixed_batch: int | None = None
    widths: tuple[int, ...] = WIDTHS
    epochs: int = 60


def sampled(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
    """`networks.train` twice: until the convolutions are good, and with these fixed.

    The convolutions are deterministic, thousands of numbers without a prior, and fit hundreds of
    images too well if they are left to it. So they are stopped early, as Adam is and on the same
    images. The weights of the linear layers and their scales are those of a second run, with the
    convolutions fixed.
    """
    began = time.perf_counter()
    preset = as_vehicles(preset)
    learn, watch = held_out(images.train)
    first, module, scales = until_good(learn, watch, preset, seed)
    second = with_fixed(module, scales, learn, preset, seed)
    names = {layer.name: layer.name for layer in second.layers}
    compiling = first.result.compile_seconds + second.result.compile_seconds
    return Trained(
        lambda features: second.predict_proba(convolved(module, features)),
        time.perf_counter() - began - compiling,
        weights={name: np.asarray(second.particles[path]) for path, name in names.items()},
        **learned_scales(second, names),
        finite=Status.NONFINITE not in (first.result.status, second.result.status),
        compile_seconds=compiling,
        num_steps=first.result.num_steps + second.result.num_steps,
        num_particles=preset.train_particles,
        says=said(second),
    )


def held_out(images: Images) -> tuple[Images, Images]:
    """The images to learn from, and those on which it is seen when to stop."""
    order = np.random.default_rng(0).permutation(len(images.labels))
    held = max(1, round(HELD_OUT * len(order)))
    return images.some(order[held:]), images.some(order[:held])


def until_good(
    learn: Images, watch: Images, preset: VehiclePreset, seed: int, num_steps: int | None = None
) -> tuple[networks.TrainedNetwork, Convolutional, dict[str, Array]]:
    """A run, and its module and scales when the held-out images were most probable."""
    for_module, for_run = jax.random.split(jax.random.key(seed))
    module = Convolutional(len(VEHICLE_NAMES), preset.widths, key=for_module)
    features = learn.features.astype(jnp.result_type(float))
    network = networks.model(module, features, learn.labels)
    watching = Watching(network, watch, preset.watched_every)
    trained = quiet_train(
        network,
        num_particles=preset.train_particles,
        num_steps=num_steps or preset.train_steps,
        batch_size=min(preset.batch, len(features)),
        key=for_run,
        callbacks=[watching],
    )
    best = jax.tree.map(jnp.asarray, watching.best or trained.theta)
    # The latent weights of the module are not used.
    return trained, eqx.combine(best["network"], module), best["scales"]


class Watching(Every):
    """Ends a run when held-out images have not become more probable for a while."""

    def __init__(self, network: networks.NetworkModel, images: Images, every: int) -> None:
        super().__init__(every)
        self.network, self.images = network, images
        self.best: dict[str, Any] | None = None
        self.density, self.waited = -np.inf, 0

    def __call__(self, view: View) -> str | None:
        if not self.is_due(view):
            return None
        back = self.network.noncentred.back
        weights = jax.vmap(back, in_axes=(None, 0))(view.theta, view.particles)
        density = self.network.log_predictive_density(view.theta, weights, *self.images)
        if density > self.density:
            self.best, self.density, self.waited = view.theta, density, 0
            return None
        self.waited += 1
        return "held-out images became less probable" if self.waited >= WAITS else None


def with_fixed(
    module: Convolutional,
    scales: dict[str, Array],
    learn: Images,
    preset: VehiclePreset,
    seed: int,
    num_steps: int | None = None,
) -> networks.TrainedNetwork:
    """The linear layers, sampled on the output of the convolutions of this module."""
    rest = eqx.tree_at(lambda one: one.convolutions, module, eqx.nn.Identity())
    network = networks.model(rest, convolved(module, learn.features), learn.labels)
    network = dataclasses.replace(network, theta=network.theta | {"scales": scales})
    batch = preset.fixed_batch
    return quiet_train(
        network,
        num_particles=preset.train_particles,
        num_steps=num_steps or preset.train_steps,
        batch_size=None if batch is None else min(batch, len(learn.labels)),
        key=jax.random.fold_in(jax.random.key(seed), 1),
    )


def convolved(module: Convolutional, features: np.ndarray, block: int = 500) -> np.ndarray:
    """The output of the convolutions for every image."""
    return _in_blocks(_convolve, module, features, block)


@eqx.filter_jit
def _convolve(module: Convolutional, features: Array) -> Array:
    return jax.vmap(lambda image: module.convolutions(image))(features)


def adam(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
    """The same network, trained by Adam and stopped early on a share of the training images."""
    preset = as_vehicles(preset)
    began = time.perf_counter()
    module = Convolutional(len(images.classes), preset.widths, key=jax.random.key(seed))
    rng = np.random.default_rng(seed)
    learn, watch = held_out(images.train)
    count = len(learn.labels)
    batch = min(BATCH, count)
    moments = optax.adam(STEP).init(eqx.filter(module, eqx.is_array))
    best, kept, waited, epochs = np.inf, module, 0, 0
    for _ in range(preset.epochs):
        chosen = rng.permutation(count)[: count // batch * batch].reshape(-1, batch)
        for rows in chosen:
            module, moments = _descend(module, moments, learn.some(rows, jnp.result_type(float)))
        epochs += 1
        loss = -measures.lppd(_probabilities(module, watch.features), watch.labels)
        best, kept, waited = (loss, module, 0) if loss < best else (best, kept, waited + 1)
        if waited >= PATIENCE:
            break
    weights = {f"linear/{i}": np.asarray(layer.weight)[None] for i, layer in enumerate(kept.linear)}
    return Trained(
        lambda features: _probabilities(kept, features),
        time.perf_counter() - began,
        weights=weights,
        num_steps=epochs * (count // batch),
    )


@eqx.filter_jit
def _descend(module: Convolutional, moments: Any, images: Any) -> tuple[Convolutional, Any]:
    def loss(module: Convolutional) -> Array:
        scores = jax.vmap(module)(images.features)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, images.labels))

    moves, moments = optax.adam(STEP).update(eqx.filter_grad(loss)(module), moments)
    return eqx.apply_updates(module, moves), moments


@eqx.filter_jit
def _scores(module: Convolutional, features: Array) -> Array:
    return jax.nn.softmax(jax.vmap(module)(features))


def _probabilities(module: Convolutional, features: np.ndarray, block: int = 500) -> np.ndarray:
    return _in_blocks(_scores, module, features, block)


def _in_blocks(program: Any, module: Any, features: np.ndarray, block: int) -> np.ndarray:
    """Some images at a time, for the memory."""
    dtype = jnp.result_type(float)
    parts = [
        np.asarray(program(module, jnp.asarray(features[at : at + block], dtype)))
        for at in range(0, len(features), block)
    ]
    return np.concatenate(parts)


def as_vehicles(preset: NetworkPreset) -> VehiclePreset:
    """The preset of this experiment."""
    assert isinstance(preset, VehiclePreset)
    return preset
