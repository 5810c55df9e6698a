"""Do intervals and probabilities of the sparse regressions mean what they say?

    python benchmarks/regression/calibration.py                 # both tables
    python benchmarks/regression/calibration.py --seeds 20 --only drawn
    python benchmarks/regression/calibration.py --only fixed --priors learned    # a minute

`drawn`: a model is fitted; coefficients and responses are drawn from what it learned, and fitted
again. 90 % intervals should hold 90 % of all coefficients, ranks of the coefficients among their
posterior draws should be uniform, and inclusion probabilities frequencies.

`fixed`: simulations with known effects, whatever prior they come from: coverage for coefficients
that are 0, that are not, and that are larger than two standard errors, for each prior.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from data_sets import simulated, simulated_labels
from scipy import stats

from pipla.regression import SparseLinearRegression, SparseLogisticRegression

warnings.simplefilter("ignore")
#: Every tenth draw is taken for ranks: neighbours are correlated.
EVERY = 10


def ranks(model: Any, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rank of each coefficient among its draws, ties at random, as a number in (0, 1)."""
    draws = model._answer_.draws[::EVERY, 0] * model._answer_.units
    below, ties = np.sum(draws < b, axis=0), np.sum(draws == b, axis=0)
    return (below + rng.uniform(size=b.size) * (ties + 1)) / (len(draws) + 1)


class Score:
    """Coverage, ranks and inclusion over several fits."""

    def __init__(self) -> None:
        self.inside: dict[str, list[np.ndarray]] = {}
        self.ranks: list[np.ndarray] = []
        self.chances: list[np.ndarray] = []
        self.happened: list[np.ndarray] = []

    def add(self, model: Any, b: np.ndarray, rng: np.random.Generator) -> None:
        low, high = model.coef_interval_.reshape(2, -1)
        threshold = model._answer_.threshold
        within = (low <= b) & (b <= high)
        large = np.abs(b) > 4 * threshold  # the threshold is half of a standard error
        parts = {"all": np.ones(b.size, bool), "zeros": b == 0, "others": b != 0, "large": large}
        for name, chosen in parts.items():
            self.inside.setdefault(name, []).append(within[chosen])
        self.ranks.append(ranks(model, b, rng))
        self.chances.append(model.inclusion_.ravel())
        self.happened.append(np.abs(b) > threshold)

    def coverage(self) -> str:
        joined = {name: np.concatenate(cells) for name, cells in self.inside.items()}
        return ", ".join(
            f"{name} {100 * cell.mean():.1f} % of {cell.size}"
            for name, cell in joined.items()
            if cell.size
        )

    def show_ranks(self) -> None:
        counts = np.histogram(np.concatenate(self.ranks), bins=10, range=(0, 1))[0]
        p = stats.chisquare(counts).pvalue
        inside = np.mean(np.abs(np.concatenate(self.ranks) - 0.5) < 0.45)
        print(f"  {100 * inside:.1f} % of the ranks are between .05 and .95")
        print(f"  ranks in ten bins {counts.tolist()}, chi-squared p = {p:.3f}")

    def show_inclusion(self) -> None:
        chance, did = np.concatenate(self.chances), np.concatenate(self.happened)
        for low in np.arange(10) / 10:
            chosen = (chance >= low) & (chance < low + 0.1 + (low > 0.85))
            if chosen.any():
                shown = f"{chance[chosen].mean():.2f} predicted, {did[chosen].mean():.2f} found"
                print(f"  inclusion {shown} ({chosen.sum()})")


def drawn(seeds: int) -> None:
    """Simulations from the fitted prior."""
    linear, logistic = SparseLinearRegression, SparseLogisticRegression
    for name, base, kind in (
        ("linear, n 200, p 300, 10 effects", simulated(0, 200, 300, 10), linear),
        ("linear, n 500, p 200, Laplace effects", simulated(0, 500, 200, 0, dense=True), linear),
        ("logistic, n 500, p 300, 20 effects", simulated_labels(0, 500, 300, 20), logistic),
    ):
        x = (base.x - base.x.mean(axis=0)) / base.x.std(axis=0)
        found = kind().fit(x, base.y).fit_
        score = Score()
        for seed in range(seeds):
            rng = np.random.default_rng([seed, 1])
            labels = rng.choice(len(found.weights), x.shape[1], p=found.weights)
            b = np.sqrt(found.variances[labels]) * rng.standard_normal(x.shape[1])
            eta = x @ b
            y = eta + found.noise * rng.standard_normal(len(eta))
            if kind is logistic:
                y = (eta + rng.logistic(size=len(eta)) > 0).astype(int)
            score.add(kind(random_state=seed).fit(x, y), b, rng)
        print(f"\n{name}: drawn from the fitted prior (weight of 0: {found.weights[0]:.2f})")
        print(f"  90 % intervals hold: {score.coverage()}")
        score.show_ranks()
        score.show_inclusion()


def fixed(seeds: int, chosen: list[str]) -> None:
    """Simulations with given effects, for the chosen priors."""
    for name, make, kind, priors in (
        (
            "linear, n 200, p 1000, 10 effects",
            lambda seed: simulated(seed, 200, 1000, 10),
            SparseLinearRegression,
            ("learned", "laplace"),
        ),
        (
            "linear, n 500, p 200, Laplace effects",
            lambda seed: simulated(seed, 500, 200, 0, dense=True),
            SparseLinearRegression,
            ("learned", "laplace"),
        ),
        (
            "logistic, n 500, p 2000, 20 effects",
            simulated_labels,
            SparseLogisticRegression,
            ("learned",),
        ),
    ):
        print(f"\n{name}: 90 % intervals hold")
        for prior in (prior for prior in priors if prior in chosen):
            score = Score()
            for seed in range(seeds if prior == "learned" else min(seeds, 2)):
                data = make(seed)
                assert data.coefficients is not None
                model = kind(prior).fit(data.x, data.y)
                score.add(model, data.coefficients, np.random.default_rng(seed))
            print(f"  {prior}: {score.coverage()}", flush=True)
            if prior == "learned":
                score.show_inclusion()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="drawn,fixed")
    parser.add_argument("--priors", default="learned,laplace", help="of `fixed`, by commas")
    options = parser.parse_args()
    parts = options.only.split(",")
    if "drawn" in parts:
        drawn(options.seeds)
    if "fixed" in parts:
        fixed(options.seeds, options.priors.split(","))


if __name__ == "__main__":
    main()
