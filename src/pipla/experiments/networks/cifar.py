"""Vehicles of CIFAR-10: deterministic convolutions, linear layers with learned Laplace scales."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from pipla import networks
from pipla.engine.result import Status
from pipla.experiments.networks import figures
from pipla.experiments.networks.experiment import (
    NetworkEntry,
    NetworkExperiment,
    NetworkJob,
    scale,
    spread,
)
from pipla.experiments.networks.methods import Method, Trained, said
from pipla.experiments.networks.recommended import learned_scales, quiet_train
from pipla.experiments.networks.rows import THRESHOLD, NetworkPreset, NetworkRow
from pipla.experiments.results import Results
from pipla.problems.classification import Classification, Images, vehicles
from pipla.report import Figure, Section, Table, Text, fixed

#: The paper's table: error and its deviation in %, LPPD, seconds, standard deviation of weights.
PAPER = (
    ("MYPGD", 5.27, 0.95, -0.441, 201.0, 3.10),
    ("MYIPLA", 5.23, 1.31, -0.505, 199.0, 3.22),
    ("PIPGLA", 5.39, 1.02, -0.432, 295.0, 2.85),
    ("PGD", 6.01, 1.15, -0.573, 178.0, 11.51),
    ("SOUL", 9.11, 2.03, -0.768, 433.0, 15.68),
    ("IPLA", 5.40, 1.33, -0.590, 181.0, 15.73),
)
#: The paper's linear layers.
WIDTHS = (512, 256, 128)
#: Adam: its step, images per step, the share of the images it is judged by, and passes without
#: progress after which it stops.
STEP, BATCH, HELD_OUT, PATIENCE = 1e-3, 50, 0.15, 15


class Convolutional(eqx.Module):
    """The paper's network: two convolutions with pooling, and four linear layers with SELU.

    The paper's list has one pooling; 16 × 5 × 5 inputs of the first linear layer need two.
    """

    convolutions: tuple[eqx.nn.Conv2d, ...]
    linear: tuple[eqx.nn.Linear, ...]
    pool: eqx.nn.MaxPool2d

    def __init__(self, classes: int, widths: Sequence[int], *, key: Key[Array, ""]) -> None:
        keys = iter(jax.random.split(key, 3 + len(widths)))
        self.convolutions = (
            eqx.nn.Conv2d(3, 6, 5, key=next(keys)),
            eqx.nn.Conv2d(6, 16, 5, key=next(keys)),
        )
        sizes = (16 * 5 * 5, *widths, classes)
        self.linear = tuple(
            eqx.nn.Linear(a, b, key=next(keys)) for a, b in itertools.pairwise(sizes)
        )
        self.pool = eqx.nn.MaxPool2d(2, 2)

    def __call__(self, image: Float[Array, "3 32 32"]) -> Float[Array, " classes"]:
        for convolution in self.convolutions:
            image = self.pool(convolution(image))
        hidden = image.ravel()
        for layer in self.linear[:-1]:
            hidden = jax.nn.selu(layer(hidden))
        return self.linear[-1](hidden)


@dataclasses.dataclass(frozen=True)
class VehiclePreset(NetworkPreset):
    """How much is run.

    Attributes:
        batch: images per step.
        widths: units of the linear layers.
        epochs: the most passes of Adam over the images.
    """

    batch: int = 100
    widths: tuple[int, ...] = WIDTHS
    epochs: int = 60


def images(preset: NetworkPreset, seed: int) -> Classification:
    """Airplanes, automobiles, ships and trucks."""
    return vehicles(seed=seed, size=preset.images)


def sampled(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
    """`networks.train` on batches: Laplace priors on linear layers, everything else in theta."""
    began = time.perf_counter()
    trained, names = _train(images, preset, seed, preset.train_steps)
    result = trained.result
    return Trained(
        trained.predict_proba,
        time.perf_counter() - began - result.compile_seconds,
        weights={name: np.asarray(trained.particles[path]) for path, name in names.items()},
        **learned_scales(trained, names),
        finite=result.status is not Status.NONFINITE,
        compile_seconds=result.compile_seconds,
        num_steps=result.num_steps,
        num_particles=preset.train_particles,
        says=said(trained),
    )


def _train(
    images: Classification, preset: NetworkPreset, seed: int, num_steps: int | None
) -> tuple[networks.TrainedNetwork, dict[str, str]]:
    """The trained network, and the names of its layers by their paths."""
    preset = _vehicles(preset)
    for_module, for_run = jax.random.split(jax.random.key(seed))
    module = Convolutional(len(images.classes), preset.widths, key=for_module)
    features = images.train.features.astype(jnp.result_type(float))
    network = networks.model(module, features, images.train.labels)
    trained = quiet_train(
        network,
        num_particles=preset.train_particles,
        num_steps=num_steps,
        batch_size=min(preset.batch, len(features)),
        key=for_run,
    )
    return trained, {layer.name: layer.name for layer in network.layers}


def adam(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
    """The same network, trained by Adam and stopped early on a share of the training images."""
    preset = _vehicles(preset)
    began = time.perf_counter()
    module = Convolutional(len(images.classes), preset.widths, key=jax.random.key(seed))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images.train.labels))
    held = max(1, round(HELD_OUT * len(order)))
    watch, learn = order[:held], order[held:]
    batch = min(BATCH, len(learn))
    moments = optax.adam(STEP).init(eqx.filter(module, eqx.is_array))
    best, kept, waited, epochs = np.inf, module, 0, 0
    for _ in range(preset.epochs):
        chosen = rng.permutation(learn)[: len(learn) // batch * batch].reshape(-1, batch)
        for rows in chosen:
            module, moments = _descend(
                module, moments, images.train.some(rows, jnp.result_type(float))
            )
        epochs += 1
        loss = -_density(module, images.train, watch)
        best, kept, waited = (loss, module, 0) if loss < best else (best, kept, waited + 1)
        if waited >= PATIENCE:
            break
    weights = {f"linear/{i}": np.asarray(layer.weight)[None] for i, layer in enumerate(kept.linear)}
    return Trained(
        lambda features: _probabilities(kept, features),
        time.perf_counter() - began,
        weights=weights,
        num_steps=epochs * (len(learn) // batch),
    )


@eqx.filter_jit
def _descend(module: Convolutional, moments: Any, images: Any) -> tuple[Convolutional, Any]:
    def loss(module: Convolutional) -> Array:
        scores = jax.vmap(module)(images.features)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, images.labels))

    moves, moments = optax.adam(STEP).update(eqx.filter_grad(loss)(module), moments)
    return eqx.apply_updates(module, moves), moments


def _density(module: Convolutional, images: Images, chosen: np.ndarray) -> float:
    probabilities = _probabilities(module, images.features[chosen])
    picked = probabilities[np.arange(len(chosen)), images.labels[chosen]]
    return float(np.mean(np.log(np.maximum(picked, 1e-12))))


@eqx.filter_jit
def _scores(module: Convolutional, features: Array) -> Array:
    return jax.nn.softmax(jax.vmap(module)(features))


def _probabilities(module: Convolutional, features: np.ndarray, block: int = 500) -> np.ndarray:
    dtype = jnp.result_type(float)
    parts = [
        np.asarray(_scores(module, jnp.asarray(features[at : at + block], dtype)))
        for at in range(0, len(features), block)
    ]
    return np.concatenate(parts)


def _vehicles(preset: NetworkPreset) -> VehiclePreset:
    assert isinstance(preset, VehiclePreset)
    return preset


# The page. #


class VehicleExperiment(NetworkExperiment):
    """One step is timed first: what the whole will take, and its memory."""

    def prepare(self, preset: NetworkPreset, seed: int) -> tuple[NetworkJob, dict[str, Any]]:
        job, noted = super().prepare(preset, seed)
        return job, noted | {"widths": list(_vehicles(preset).widths)}  # as JSON has it

    def estimate(
        self, job: NetworkJob, entries: Sequence[NetworkEntry], results: Results[NetworkRow]
    ) -> float:
        """2.2 ms per image and step, .1 ms more per particle: measured on one core."""
        preset = _vehicles(job.preset)
        step = preset.batch * (2.2e-3 + 1e-4 * preset.train_particles)
        each = {"recommended": step * (preset.train_steps or 0), "peer": 40.0}
        return preset.replicates * sum(each[entry.variant] for entry in entries) + 60

    def reference(self, job: NetworkJob, progress: bool | None) -> dict[str, Any]:
        began = time.perf_counter()
        images = self.data(job.preset, job.seed)
        trained, _ = _train(images, job.preset, job.seed, TIMED)
        step = trained.result.seconds / TIMED
        steps = (job.preset.train_steps or 0) * job.preset.replicates
        memory = peak_memory()
        shown = "" if memory is None else f", {memory:.2f} GiB of memory at its peak so far"
        return {
            "method": f"One step of {job.preset.train_particles} particles on "
            f"{_vehicles(job.preset).batch} images takes {1e3 * step:.0f} ms on this machine"
            f"{shown}. The {steps} steps of the sampled rows "
            f"will take {step * steps / 60:.0f} minutes.",
            "seconds": time.perf_counter() - began,
            "step_seconds": step,
            "peak_gib": memory,
        }

    def setting(self, results: Results[NetworkRow]) -> list[str]:
        return [*super().setting(results), str(results.reference["method"])]


#: Steps that are timed.
TIMED = 6


def peak_memory() -> float | None:
    """The most GiB that this process has had, compilation included; `None` on Windows."""
    try:
        import resource
    except ImportError:
        return None
    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def tables(results: Results[NetworkRow]) -> list[Section]:
    """What the paper says, and the scales of all layers."""
    paper = Table(
        ("algorithm", "error (%)", "±", "LPPD", "seconds", "sd of weights"),
        [list(line) for line in PAPER],
        caption="The paper's table. Its code for CIFAR-10 is not public, so that there are no "
        "published rows here.",
    )
    names = list(dict.fromkeys(name for row in results.rows for name in row.scales))
    if not names:
        return [Section("In the paper", [paper])]
    learned = Table(
        ("method", *names),
        [[row.label, *(scale(row, name) for name in names)] for row in results.rows if row.scales],
        caption="The logarithm alpha of each layer's scale exp(2 alpha), with its Monte-Carlo "
        "error in brackets.",
    )
    return [Section("Learned scales", [learned]), Section("In the paper", [paper])]


def findings(results: Results[NetworkRow]) -> Sequence[Text]:
    """The sampled network beside the same one trained by Adam."""
    ours = next((row for row in results.rows if row.variant == "recommended"), None)
    theirs = next((row for row in results.rows if row.variant == "peer"), None)
    if ours is None or theirs is None or ours.error_large is None or theirs.error_large is None:
        return []
    gap = ours.error_large - theirs.error_large
    return [
        Text(
            f"On the large set the sampled network has an error of {ours.error_large:.1f} %, the "
            f"same network trained by Adam {theirs.error_large:.1f} % ({gap:+.1f} points); LPPD "
            f"{ours.lppd_large:.3f} and {theirs.lppd_large:.3f}, calibration error "
            f"{ours.calibration:.1f} and {theirs.calibration:.1f} points."
        )
    ]


def drawn(results: Results[NetworkRow]) -> Mapping[str, Figure]:
    """The weights of the first linear layer, and its scale against the steps."""
    return figures.collected(
        weights=figures.histograms(results, "linear/0"),
        alpha=figures.traces(results, ("recommended",)),
    )


def rows() -> list[NetworkEntry]:
    """Sampled, and trained by Adam."""
    method: Method = sampled
    return [
        NetworkEntry(
            *("train", "exact", "recommended", method),
            detail="Laplace prior",
        ),
        NetworkEntry("Adam with early stopping", "none", "peer", adam),
    ]


CIFAR = VehicleExperiment(
    name="bnn-cifar10",
    title="Vehicles of CIFAR-10 by a Bayesian network with convolutions",
    about="Four classes of CIFAR-10 (airplane, automobile, ship, truck). Two convolutions are "
    "deterministic and learned by Adam as a part of theta, with the biases; the weights of four "
    "linear layers (400-512-256-128-4, SELU) are sampled under Laplace priors, whose scales are "
    "learned, one per layer. Steps are on batches of the images. Beside it the same network "
    "trained by Adam.",
    data=images,
    columns={
        "method": lambda row: row.label,
        "error, test images (%)": lambda row: spread(row, "error", 2),
        "error, large set (%)": lambda row: spread(row, "error_large", 2),
        "LPPD, large set": lambda row: spread(row, "lppd_large", 3),
        "calibration error (points)": lambda row: spread(row, "calibration", 2),
        "sd of weights": lambda row: spread(row, "std_weights", 4),
        f"|w| < {THRESHOLD} (%)": lambda row: spread(row, "below", 1),
        "N": lambda row: row.num_particles,
        "steps": lambda row: row.num_steps,
        "seconds": lambda row: fixed(row.seconds, 1),
    },
    caption="Means over splits, ± their standard deviation; weights are those of the first linear "
    "layer. The large set are test images of CIFAR-10, of which no split draws.",
    further=tables,
    entries=rows(),
    presets={
        "quick": VehiclePreset(1, train_particles=2, train_steps=1200, images=1000, batch=200),
        "paper": VehiclePreset(
            1, train_particles=50, train_steps=20000, images=5000, batch=100, epochs=100
        ),
        "tiny": VehiclePreset(
            1, train_particles=2, train_steps=4, images=40, batch=8, widths=(5, 4), epochs=1
        ),
    },
    figures=drawn,
    findings=findings,
)
