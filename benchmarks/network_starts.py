"""Whether `networks.train` finds the same scales from other starts, and what pruning costs.

    python benchmarks/network_starts.py results.jsonl [minutes] [splits]

The network of `bnn-mnist` with the library's own rule, on five splits of MNIST's 4 and 9: from
alpha = -1, -2 and -3 with a Laplace prior, and once with a group prior per unit. The three starts
of a split share their random numbers, so that the start is all that differs; the Monte-Carlo error
says what other random numbers would change. Then 90 % of the weights of the first layer are set to
0 in every draw, those of the smallest magnitude, or of the smallest magnitude times the norm of the
weights that leave their unit (path); and hidden units are removed as in `bnn-pruning`.

One line is added to the file for each run, and runs that are in it are not made again: call it
until all are there. `minutes` is the time after which no further run begins; one takes a minute or
two.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pipla_lab.data.classification import Classification
from pipla_lab.experiments.networks import measures, mnist, pruning, two_layers
from pipla_lab.experiments.networks.experiment import measured
from pipla_lab.experiments.networks.recommended import recommended

#: Starts of alpha with the Laplace prior.
STARTS = (-1.0, -2.0, -3.0)
#: The share of w that is removed, and the most draws that are pruned.
REMOVED, DRAWS = 0.9, 100


def main() -> None:
    path = Path(sys.argv[1])
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    splits = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["split"], line["start"]) for line in lines}
    began = time.perf_counter()
    wanted = [(split, start) for split in range(splits) for start in STARTS]
    wanted.sort(key=lambda each: each[1] == STARTS[1])  # the outer starts of all splits first
    for split, start in (*wanted, *((split, None) for split in range(splits))):
        if (split, start) in done or time.perf_counter() - began > 60 * minutes:
            continue
        line = one(split, start)
        lines.append(line)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
    show(lines)


def one(split: int, start: float | None) -> dict[str, Any]:
    """What one run gives; without a start, with the group prior."""
    cpu = time.process_time()
    images = mnist.images(mnist.PRESETS["paper"], split)
    prior = {"w": "group", "v": "laplace"} if start is None else "laplace"
    trained = recommended(prior, start)(images, mnist.PRESETS["paper"], split)
    seconds = time.process_time() - cpu
    found = {name: value for name, value in measured(trained, images).items() if value is not None}
    few = {name: layer[:: max(1, len(layer) // DRAWS)] for name, layer in trained.weights.items()}
    thresholds = {"w": float(np.quantile(np.abs(few["w"]), REMOVED)), "v": 0.0}
    paths = np.abs(few["w"]) * np.linalg.norm(few["v"], axis=2)[:, None, :]
    kept = paths >= np.quantile(paths, REMOVED)
    by_units = [quality(pruning.without_units(few, share), images)[0] for share in pruning.UNITS]
    dear = np.flatnonzero(np.array(by_units) > by_units[0] + pruning.FREE)
    return {
        "split": split,
        "start": start,
        "steps": trained.num_steps,
        "cpu_seconds": round(seconds, 1),
        "mcse": trained.theta_error["alpha"],
        "says": trained.says,
        "whole": quality(few, images),
        "pruned": quality(measures.prune(few, thresholds).weights, images),
        "pruned by path": quality(few | {"w": few["w"] * kept}, images),
        "free_units": 100 * pruning.UNITS[(dear[0] if len(dear) else len(pruning.UNITS)) - 1],
    } | found


def quality(weights: measures.Weights, images: Classification) -> tuple[float, float]:
    """Error and LPPD on the large set."""
    assert images.large is not None
    probabilities = two_layers.probabilities(weights, images.large.features)
    labels = images.large.labels
    return measures.error(probabilities, labels), measures.lppd(probabilities, labels)


def show(lines: list[dict[str, Any]]) -> None:
    """Alpha by split and start, and means of the rest."""
    laplace = sorted((x for x in lines if x["start"] is not None), key=lambda x: -x["start"])
    for split in sorted({line["split"] for line in laplace}):
        same = [line for line in laplace if line["split"] == split]
        alphas = [line["scale alpha"] for line in same]
        shown = ", ".join(
            f"{line['scale alpha']:.3f} ± {line['mcse']:.3f} from {line['start']:g}"
            for line in same
        )
        print(f"split {split}: alpha {shown}; {max(alphas) - min(alphas):.3f} apart")
    groups = {"Laplace prior": laplace, "group prior": [x for x in lines if x["start"] is None]}
    for name, some in groups.items():
        if not some:
            continue
        print(f"{name}, {len(some)} runs:")
        for what in ("error_large", "lppd_large", "calibration", "free_units", "cpu_seconds"):
            values = np.array([line[what] for line in some])
            print(f"  {what:12} {values.mean():.4g}, from {values.min():.4g} to {values.max():.4g}")
        for what in ("pruned", "pruned by path"):
            found = [(line["whole"], line[what]) for line in some if what in line]
            before, after = np.array(found).reshape(-1, 2, 2).swapaxes(0, 1)
            print(
                f"  90 % of w {what}: error {before[:, 0].mean():.2f} to {after[:, 0].mean():.2f} "
                f"% (at most {(after - before)[:, 0].max():+.2f}), LPPD {before[:, 1].mean():.4f} "
                f"to {after[:, 1].mean():.4f}"
            )
        print(f"  unreliable: {sum('unreliable' in line['says'] for line in some)}")


if __name__ == "__main__":
    main()
