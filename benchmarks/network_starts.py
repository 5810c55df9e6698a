"""Whether `networks.train` finds the same scales from other starts, and what pruning costs.

    python benchmarks/network_starts.py results.jsonl [minutes] [splits]

The network of `bnn-mnist` with the library's own rule, on five splits of MNIST's 4 and 9: from
alpha = -1, -2 and -3 with a Laplace prior, each with random numbers of its own, and once with a
group prior per unit. One line is added to the file for each run, and runs that are in it are not
made again: call it until all are there. `minutes` is the time after which no further run begins.
A run takes one to two minutes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pipla.experiments.networks import mnist, pruning
from pipla.experiments.networks.experiment import measured
from pipla.experiments.networks.recommended import recommended

#: Starts of alpha; `None` is the group prior, from the start that the library chooses.
STARTS = (-1.0, -2.0, -3.0, None)


def main() -> None:
    path = Path(sys.argv[1])
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    splits = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["split"], line["start"]) for line in lines}
    began = time.perf_counter()
    for split in range(splits):
        for place, start in enumerate(STARTS):
            if (split, start) in done or time.perf_counter() - began > 60 * minutes:
                continue
            line = one(split, start, seed=1000 * split + place)
            lines.append(line)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
    show(lines)


def one(split: int, start: float | None, seed: int) -> dict[str, Any]:
    """What one run gives."""
    cpu = time.process_time()
    images = mnist.images(mnist.PRESETS["paper"], split)
    prior = {"w": "group", "v": "laplace"} if start is None else "laplace"
    trained = recommended(prior, start)(images, mnist.PRESETS["paper"], seed)
    seconds = time.process_time() - cpu
    found = {name: value for name, value in measured(trained, images).items() if value is not None}
    lines, _ = pruning.measured(trained, images)
    kept = {
        f"{line['removed']}, {line['averaged']}": (line["error_large"], line["lppd_large"])
        for line in lines
        if line["removed"] in ("nothing", "90 % of w")
    }
    return {
        "split": split,
        "start": start,
        "steps": trained.num_steps,
        "cpu_seconds": round(seconds, 1),
        "mcse": trained.theta_error["alpha"],
        "says": trained.says,
        "free_units": lines[-1]["free_units"],
        "pruning": kept,
    } | found


def show(lines: list[dict[str, Any]]) -> None:
    """Alpha by split and start, and means of the rest."""
    laplace = [line for line in lines if line["start"] is not None]
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
        for what in some[0]["pruning"]:
            errors, densities = np.array([line["pruning"][what] for line in some]).T
            print(f"  {what:26} error {errors.mean():.2f} %, LPPD {densities.mean():.4f}")
        print(f"  unreliable: {sum('unreliable' in line['says'] for line in some)}")


if __name__ == "__main__":
    main()
