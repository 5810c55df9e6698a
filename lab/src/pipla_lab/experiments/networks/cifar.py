"""Vehicles of CIFAR-10: deterministic convolutions, linear layers with learned Laplace scales."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pipla.report import Figure, Section, Table, Text, fixed
from pipla_lab.data.classification import Classification, vehicles
from pipla_lab.experiments.networks import figures
from pipla_lab.experiments.networks.convolutional import (
    HELD_OUT,
    VehiclePreset,
    adam,
    as_vehicles,
    held_out,
    sampled,
    until_good,
    with_fixed,
)
from pipla_lab.experiments.networks.experiment import (
    NetworkEntry,
    NetworkExperiment,
    NetworkJob,
    scale,
    spread,
)
from pipla_lab.experiments.networks.methods import Method
from pipla_lab.experiments.networks.rows import THRESHOLD, NetworkPreset, NetworkRow
from pipla_lab.experiments.results import Results

#: The paper's table: error and its deviation in %, LPPD, seconds, standard deviation of weights.
PAPER = (
    ("MYPGD", 5.27, 0.95, -0.441, 201.0, 3.10),
    ("MYIPLA", 5.23, 1.31, -0.505, 199.0, 3.22),
    ("PIPGLA", 5.39, 1.02, -0.432, 295.0, 2.85),
    ("PGD", 6.01, 1.15, -0.573, 178.0, 11.51),
    ("SOUL", 9.11, 2.03, -0.768, 433.0, 15.68),
    ("IPLA", 5.40, 1.33, -0.590, 181.0, 15.73),
)


def images(preset: NetworkPreset, seed: int) -> Classification:
    """Airplanes, automobiles, ships and trucks."""
    return vehicles(seed=seed, size=preset.images)


class VehicleExperiment(NetworkExperiment):
    """One step is timed first: what the whole will take, and its memory."""

    def prepare(self, preset: NetworkPreset, seed: int) -> tuple[NetworkJob, dict[str, Any]]:
        job, noted = super().prepare(preset, seed)
        return job, noted | {"widths": list(as_vehicles(preset).widths)}  # as JSON has it

    def estimate(
        self, job: NetworkJob, entries: Sequence[NetworkEntry], results: Results[NetworkRow]
    ) -> float:
        """Per image and step .2 ms, and .06 ms more per particle: measured on one core."""
        preset = as_vehicles(job.preset)
        images = 0.8 * (1 - HELD_OUT) * preset.images
        first = preset.batch * (2e-4 + 6e-5 * preset.train_particles)
        second = (preset.fixed_batch or images) * 6e-5 * preset.train_particles
        each = {"recommended": (first + second) * (preset.train_steps or 0), "peer": 40.0}
        return preset.replicates * sum(each[entry.variant] for entry in entries) + 60

    def reference(self, job: NetworkJob, progress: bool | None) -> dict[str, Any]:
        began = time.perf_counter()
        preset = as_vehicles(job.preset)
        learn, watch = held_out(self.data(preset, job.seed).train)
        first, module, scales = until_good(learn, watch, preset, job.seed, TIMED)
        second = with_fixed(module, scales, learn, preset, job.seed, TIMED)
        times = [run.result.seconds / TIMED for run in (first, second)]
        minutes = (preset.train_steps or 0) * preset.replicates * sum(times) / 60
        memory = peak_memory()
        shown = "" if memory is None else f", {memory:.2f} GiB of memory at its peak so far"
        return {
            "method": f"One step of {preset.train_particles} particles on {preset.batch} images "
            f"takes {1e3 * times[0]:.0f} ms on this machine while the convolutions are learned, "
            f"and {1e3 * times[1]:.0f} ms on {preset.fixed_batch or len(learn.labels)} images with "
            f"these fixed{shown}. {preset.train_steps} steps of both will take {minutes:.0f} "
            "minutes at most.",
            "seconds": time.perf_counter() - began,
            "step_seconds": times[0],
            "fixed_step_seconds": times[1],
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
    "learned, one per layer. Steps are on batches of the images until a part of them, which is "
    "held out, is most probable; then the convolutions are fixed, and weights and scales sampled "
    "with them. Beside it the same network trained by Adam and stopped early on the same "
    "held-out images.",
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
        "quick": VehiclePreset(1, train_particles=10, train_steps=600, images=1000, batch=200),
        "paper": VehiclePreset(
            1,
            train_particles=50,
            train_steps=20000,
            images=5000,
            batch=100,
            watched_every=250,
            fixed_batch=100,
            epochs=100,
        ),
        "tiny": VehiclePreset(
            1,
            train_particles=2,
            train_steps=4,
            images=40,
            batch=8,
            watched_every=1,
            widths=(5, 4),
            epochs=1,
        ),
    },
    figures=drawn,
    findings=findings,
)
