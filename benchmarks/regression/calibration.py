"""Do intervals and probabilities of the sparse regressions mean what they say?

    python benchmarks/regression/calibration.py                         # all (long: see below)
    python benchmarks/regression/calibration.py --only drawn,theta --seeds 20    # two minutes
    python benchmarks/regression/calibration.py --only fixed --priors learned    # a minute
    python benchmarks/regression/calibration.py --only scales --seeds 4 --match linear  # minutes

`drawn`: a model is fitted; coefficients and responses are drawn from what it learned, and fitted
again, once with the prior and the noise known, once with both learned again as users do. `theta`:
the weights of the prior are drawn, too, from the prior that the sampler gives them.

Where 0 has a positive probability, an interval that contains it cannot hold less than that: 90 %
intervals of sparse coefficients hold more, even if everything is exact. "Posterior" is
what they hold according to the posterior itself. An interval whose ends fall on 0 by a draw of the
right probability would hold 90 %: that is the share of ranks, with ties broken at random, between
.05 and .95 (averaged over how they are broken). The p-value is that of ten equally probable bins;
coefficients of one simulation share what was learned, so that simulations are its observations
(Hotelling's test).

`fixed`: simulations with known effects, whatever prior they come from: coverage for coefficients
that are 0, that are not, and that are larger than two standard errors, for each prior. `scales`:
draws from the fitted prior as in `drawn`, for the priors that have a scale only.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np
from calibration_chains import prior_of_weights, with_prior
from data_sets import Split, simulated, simulated_labels
from scipy import stats

from pipla.regression import SparseLinearRegression, SparseLogisticRegression

warnings.simplefilter("ignore")
LINEAR, LOGISTIC = SparseLinearRegression, SparseLogisticRegression


class Fitted(NamedTuple):
    """Draws of the coefficients, and how large one must be to count as an effect."""

    draws: np.ndarray
    threshold: np.ndarray


def fitted(model: Any) -> Fitted:
    answer = model._answer_
    return Fitted(answer.draws[:, 0] * answer.units, answer.threshold)


def shares_below(ends: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The part of each interval (2, size) below each of the places: an array (size, places)."""
    low, high = ends[..., None]
    return np.clip((places - low) / (high - low), 0, 1)


def equal_bins(counts: np.ndarray) -> float:
    """Hotelling's p-value for bins of equal means; NaN if simulations, one per row, are few."""
    rows, bins = counts.shape
    if rows <= bins:
        return float("nan")
    gap = (counts - counts.mean(axis=1, keepdims=True))[:, :-1]
    mean = gap.mean(axis=0)
    squared = rows * mean @ np.linalg.solve(np.cov(gap.T), mean)
    free = bins - 1
    return float(stats.f.sf(squared * (rows - free) / (free * (rows - 1)), free, rows - free))


class Score:
    """Coverage, ranks and inclusion over several fits."""

    def __init__(self) -> None:
        self.inside: dict[str, list[np.ndarray]] = {}
        self.masses: list[np.ndarray] = []
        self.ranks: list[np.ndarray] = []
        self.chances: list[np.ndarray] = []
        self.happened: list[np.ndarray] = []

    def add(self, found: Fitted, b: np.ndarray) -> None:
        draws, threshold = found
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        self.masses.append(np.mean((low <= draws) & (draws <= high), axis=0))
        within = (low <= b) & (b <= high)
        large = np.abs(b) > 4 * threshold  # the threshold is half of a standard error
        parts = {"all": np.ones(b.size, bool), "zeros": b == 0, "others": b != 0, "large": large}
        for name, chosen in parts.items():
            self.inside.setdefault(name, []).append(within[chosen])
        below, ties = np.sum(draws < b, axis=0), np.sum(draws == b, axis=0)
        ends = np.stack([below, below + ties + 1]) / (len(draws) + 1)
        self.ranks.append(np.diff(shares_below(ends, np.arange(21) / 20)).sum(axis=0))
        self.chances.append(np.mean(np.abs(draws) > threshold, axis=0))
        self.happened.append(np.abs(b) > threshold)

    def show(self, title: str, ranks: bool = True, inclusion: bool = True) -> None:
        joined = {name: np.concatenate(cells) for name, cells in self.inside.items()}
        coverage = ", ".join(
            f"{name} {100 * cell.mean():.1f} % of {cell.size}"
            for name, cell in joined.items()
            if cell.size
        )
        mass = 100 * np.mean(np.concatenate(self.masses))
        print(f"  {title}: 90 % intervals hold {coverage}; posterior {mass:.1f} %")
        if ranks:
            ranks = np.array(self.ranks)
            middle = 100 * ranks[:, 1:-1].sum() / ranks.sum()
            counts = ranks[:, ::2] + ranks[:, 1::2]
            shown = np.round(10 * counts.sum(axis=0) / counts.sum(), 3).tolist()
            print(f"    {middle:.1f} % of the ranks are between .05 and .95")
            print(f"    ranks in ten bins, 1 expected: {shown}; p = {equal_bins(counts):.3f}")
        if inclusion:
            self.show_inclusion()
        print(end="", flush=True)

    def show_inclusion(self) -> None:
        chance, did = np.concatenate(self.chances), np.concatenate(self.happened)
        for low in np.arange(10) / 10:
            chosen = (chance >= low) & (chance < low + 0.1 + (low > 0.85))
            if chosen.any():
                shown = f"{chance[chosen].mean():.2f} predicted, {did[chosen].mean():.2f} found"
                print(f"    inclusion {shown} ({chosen.sum()})")


def responses(kind: Any, eta: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    if kind is LOGISTIC:
        return (eta + rng.logistic(size=len(eta)) > 0).astype(int)
    return eta + noise * rng.standard_normal(len(eta))


def drawn(seeds: int, theta: bool) -> None:
    """Simulations from the fitted prior; with `theta`, from its grid with weights drawn."""
    for name, base, kind in (
        ("linear, n 200, p 300, 10 effects", simulated(0, 200, 300, 10), LINEAR),
        ("linear, n 500, p 200, Laplace effects", simulated(0, 500, 200, 0, dense=True), LINEAR),
        ("logistic, n 500, p 300, 20 effects", simulated_labels(0, 500, 300, 20), LOGISTIC),
    ):
        x = (base.x - base.x.mean(axis=0)) / base.x.std(axis=0)
        found = kind().fit(x, base.y).fit_
        known, learned = Score(), Score()
        for seed in range(seeds):
            rng = np.random.default_rng([seed, 1])
            weights = found.weights
            if theta:
                weights = rng.dirichlet(prior_of_weights(found.variances, x.shape[1]))
            labels = rng.choice(len(weights), x.shape[1], p=weights)
            b = np.sqrt(found.variances[labels]) * rng.standard_normal(x.shape[1])
            y = responses(kind, x @ b, found.noise, rng)
            prior = found._replace(weights=weights)
            error = 2.0 if kind is LOGISTIC else found.noise
            threshold = np.full(x.shape[1], 0.5 * error / np.sqrt(len(x)))
            draws = with_prior(x, y, kind is LOGISTIC, prior, seed, theta)
            known.add(Fitted(draws, threshold), b)
            if not theta:
                learned.add(fitted(kind(random_state=seed).fit(x, y)), b)
        if theta:
            print(f"\n{name}: weights, coefficients and responses drawn")
            known.show("weights drawn by the sampler, too")
            continue
        print(f"\n{name}: drawn from the fitted prior (weight of 0: {found.weights[0]:.2f})")
        known.show("prior and noise known")
        learned.show("prior and noise learned again")


def fixed(seeds: int, chosen: list[str]) -> None:
    """Simulations with given effects, for the chosen priors; at most two where `fit` is used."""
    every = ("learned", "laplace", "elastic-net", "group")
    cases: tuple[tuple[str, Any, Any, tuple[str, ...]], ...] = (
        ("linear, n 200, p 1000, 10 effects", (200, 1000, 10), LINEAR, ("learned",)),
        ("linear, n 500, p 2000, 20 effects", (500, 2000, 20), LINEAR, ("learned",)),
        ("linear, n 200, p 100, 10 effects", (200, 100, 10), LINEAR, every),
        ("linear, n 500, p 200, Laplace effects", (500, 200, 0, True), LINEAR, every[:2]),
        ("logistic, n 500, p 2000, 20 effects", (500, 2000, 20), LOGISTIC, ("learned",)),
        ("logistic, n 500, p 100, 10 effects", (500, 100, 10), LOGISTIC, every),
    )
    for name, sizes, kind, priors in cases:
        print(f"\n{name}: effects given")
        make: Any = simulated if kind is LINEAR else simulated_labels
        for prior in (prior for prior in priors if prior in chosen):
            score = Score()
            for seed in range(seeds if prior == "learned" else min(seeds, 2)):
                data: Split = make(seed, *sizes)
                assert data.coefficients is not None
                groups = np.arange(data.x.shape[1]) // 2 if prior == "group" else None
                model = kind(prior, groups=groups).fit(data.x, data.y)
                score.add(fitted(model), data.coefficients)
            score.show(prior, ranks=False, inclusion=prior == "learned")


def from_scale(prior: str, c: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """Coefficients under a prior with the scale c: `l1_ratio` is 1/2, groups are pairs."""
    if prior == "laplace":
        return c * rng.laplace(size=size)
    if prior == "group":  # the size of a pair has the density r exp(-sqrt(3/2) r / c)
        sizes, angles = rng.gamma(2.0, c / np.sqrt(1.5), size // 2), rng.random(size // 2)
        turns = 2 * np.pi * angles
        return np.stack([sizes * np.cos(turns), sizes * np.sin(turns)], axis=1).ravel()
    proposed = rng.laplace(scale=2.0, size=100 * size)
    accepted = proposed[rng.random(100 * size) < np.exp(-0.25 * proposed**2)]
    return c * accepted[:size]


def scales(seeds: int, match: str) -> None:
    """Draws from a fitted prior that has a scale."""
    for name, kind, base in (
        ("linear, n 100, p 50", LINEAR, simulated(0, 100, 50, 0, dense=True)),
        ("logistic, n 200, p 50", LOGISTIC, simulated_labels(0, 200, 50, 50)),
    ):
        if match not in name:
            continue
        print(f"\n{name}: drawn from the fitted prior")
        x = (base.x - base.x.mean(axis=0)) / base.x.std(axis=0)
        target = base.y if kind is LOGISTIC else base.y / base.y.std()
        for prior in ("laplace", "elastic-net", "group"):
            options = {"prior": prior, "groups": np.arange(50) // 2 if prior == "group" else None}
            theta = kind(**options).fit(x, target).theta_
            score = Score()
            for seed in range(seeds):
                rng = np.random.default_rng([seed, 2])
                b = from_scale(prior, theta["scale"], 50, rng)
                y = responses(kind, x @ b, theta.get("noise", 1.0), rng)
                score.add(fitted(kind(**options, random_state=seed).fit(x, y)), b)
            score.show(prior, inclusion=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="drawn,theta,fixed,scales")
    parser.add_argument("--priors", default="learned,laplace,elastic-net,group", help="of `fixed`")
    parser.add_argument("--match", default="", help="of `scales`: only names that contain this")
    options = parser.parse_args()
    for part in options.only.split(","):
        if part in ("drawn", "theta"):
            drawn(options.seeds, theta=part == "theta")
        elif part == "fixed":
            fixed(options.seeds, options.priors.split(","))
        elif part == "scales":
            scales(options.seeds, options.match)
        else:
            parser.error(f"--only takes drawn, theta, fixed and scales, got {part!r}.")


if __name__ == "__main__":
    main()
