"""Completion of matrices of known rank, and of ratings: errors, intervals, noise, rank, seconds.

    python benchmarks/completion.py rank5            # the default prior beside SoftImpute-CV
    python benchmarks/completion.py held-out         # other shapes, ranks and patterns of gaps
    python benchmarks/completion.py held-out-again   # more of them
    python benchmarks/completion.py noise            # learned, beside that of the data
    python benchmarks/completion.py nuclear          # the paper's prior on the same matrices
    PIPLA_DATA=... python benchmarks/completion.py ratings [300x500 | all] [0,1,2]

SMURFF's BPMF is beside the ratings, if it is installed (`pip install smurff`). The penalty of
SoftImpute is chosen on a path with a warm start, at 15 % of the observations.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipla.completion import Triplets, complete
from pipla_lab.experiments.completion import matrices, methods, peers

SEEDS = 5


class Case(NamedTuple):
    """A matrix of known rank, and what is observed of it.

    Attributes:
        shape, rank: of the matrix; its factors are standard normal.
        share: the share of the entries that is observed, about.
        gaps: `"random"`; `"rows"`, some rows nearly full, others nearly empty; or `"blocks"`,
            whole tenths of the rows by tenths of the columns.
        noise: the standard deviation of the noise.
        mean, effects: a constant, and the standard deviation of a constant per row.
    """

    shape: tuple[int, int]
    rank: int = 5
    share: float = 0.5
    gaps: str = "random"
    noise: float = 1.0
    mean: float = 0.0
    effects: float = 0.0

    def __str__(self) -> str:
        said = f"{self.shape[0]} × {self.shape[1]}, rank {self.rank}, {self.share:.0%} seen"
        said += "" if self.gaps == "random" else f", gaps by {self.gaps}"
        said += "" if self.noise == 1 else f", noise {self.noise}"
        return said + (f", mean {self.mean}, row effects {self.effects}" if self.effects else "")

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The matrix, and its noisy observations with NaN in the gaps."""
        rng, (count, width) = np.random.default_rng(seed), self.shape
        truth = rng.standard_normal((count, self.rank)) @ rng.standard_normal((self.rank, width))
        chance, chances = rng.random(self.shape), np.full((count, 1), self.share)
        if self.gaps == "rows":
            chance = rng.random(self.shape)
            chances = np.linspace(0.15, 2 * self.share - 0.15, count)[:, None]
        elif self.gaps == "blocks":
            blocks = [np.arange(size) * 10 // size for size in self.shape]
            chance = rng.random((10, 10))[np.ix_(*blocks)]
        noise = self.noise * rng.standard_normal(self.shape)
        if self.effects:
            truth = truth + self.mean + self.effects * rng.standard_normal((count, 1))
        return truth, np.where(chance < chances, truth + noise, np.nan)


#: The matrices of issue 17, on which the defaults were chosen.
RANK5 = (Case((60, 40)), Case((200, 150)))
#: Matrices that nothing was chosen on.
HELD_OUT = (
    Case((40, 60), 3),
    Case((120, 80), 8),
    Case((100, 100), 1, 0.3),
    Case((150, 100), 5, 0.5, "rows"),
    Case((150, 100), 12, 0.6),
    Case((30, 200), 2, 0.4, "rows"),
)
#: More of them, made after the first six had been seen.
HELD_OUT_AGAIN = (
    Case((400, 30), 2, 0.4),
    Case((80, 80), 4, 0.6, "blocks"),
    Case((120, 90), 3, 0.5, noise=0.3, mean=20.0, effects=3.0),
    Case((150, 120), 3, 0.2),
)


def compare(case: Case, seed: int) -> list[float]:
    """One matrix: the error beside SoftImpute-CV's, coverage, noise and rank."""
    truth, observed = case.draw(seed)
    missing = np.isnan(observed)

    def nmse(found: np.ndarray) -> float:
        return float(100 * np.sum((found - truth)[missing] ** 2) / np.sum(truth[missing] ** 2))

    found = complete(observed, seed=seed, progress=False)
    low, high = found.interval(0.9)
    covered = float(np.mean(((low <= truth) & (truth <= high))[missing]))
    ours = nmse(found.fill(observed))
    soft = peers.centred_soft_impute_cv if case.effects else peers.soft_impute_cv
    theirs = nmse(soft(entries(observed), seed))
    print(
        f"{case}; seed {seed}: NMSE missing {ours:6.2f} %, SoftImpute-CV {theirs:6.2f} %, ratio "
        f"{ours / theirs:.2f}; 90 % intervals hold {covered:.3f}; noise {found.noise:.3f}; rank "
        f"{found.rank}; {found.seconds:.1f} s {' '.join(map(str, found.findings))}",
        flush=True,
    )
    return [ours / theirs, covered, found.noise, found.rank]


def rank5() -> None:
    for case in RANK5:
        rows = [compare(case, seed) for seed in range(SEEDS)]
        ratio, covered, noise, rank = np.array(rows).T
        print(
            f"{case.shape}: ratio {ratio.mean():.2f} ({ratio.max():.2f} at worst), intervals hold "
            f"{covered.mean():.3f} ({covered.min():.3f} to {covered.max():.3f}), noise "
            f"{noise.min():.3f} to {noise.max():.3f}, ranks {rank.astype(int).tolist()}"
        )


def held_out(cases: tuple[Case, ...]) -> None:
    for case in cases:
        for seed in range(2):
            compare(case, seed)


def noise() -> None:
    """The noise beside that of the data, where columns near the detection limit take part of it."""
    errors = []
    for seed in range(15, 25):
        truth, observed = RANK5[0].draw(seed)
        found = complete(observed, seed=seed, progress=False)
        actual = float(np.nanstd(observed - truth))
        maximiser = float(np.mean(found.draws.noise))
        errors.append([found.noise / actual - 1, maximiser / actual - 1])
        print(
            f"{RANK5[0]}; seed {seed}: noise {found.noise:.3f}, of the data {actual:.3f}, maximum "
            f"of the marginal likelihood {maximiser:.3f}; rank {found.rank}; {found.findings}",
            flush=True,
        )
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    print(f"RMS error: noise {rms[0]:.3f}, maximum of the marginal likelihood {rms[1]:.3f}")


def entries(matrix: np.ndarray) -> matrices.Observed:
    """The entries that are not NaN."""
    rows, columns = np.nonzero(~np.isnan(matrix))
    return matrices.Observed(rows, columns, matrix[rows, columns], matrix.shape)


def nuclear() -> None:
    """Its error and intervals, and the noise that it "learns" by the step."""
    for seed in range(2):
        truth, observed = RANK5[0].draw(seed)
        missing = np.isnan(observed)
        found = complete(observed, prior="nuclear", noise=1.0, num_steps=600, progress=False)
        low, high = found.interval(0.9)
        error = 100 * np.sum((found.mean() - truth)[missing] ** 2) / np.sum(truth[missing] ** 2)
        covered = np.mean(((low <= truth) & (truth <= high))[missing])
        noises = methods.learned_noises(entries(observed), (1.0, 2.0, 8.0), 1000)
        print(
            f"60 × 40 seed {seed}: nuclear norm at the true noise: NMSE missing {error:.1f} %, "
            f"90 % intervals hold {covered:.3f}; “learned” noise by step: "
            + ", ".join(f"{noise:.3f} at {step:.4f}" for step, noise in noises),
            flush=True,
        )


def ratings(size: tuple[int, int] | None, splits: Sequence[int]) -> None:
    for split in splits:
        matrix = matrices.ratings(size, split)
        test = matrix.test
        assert test is not None
        began = time.process_time()
        found = complete(Triplets(*matrix.observed), seed=split, progress=False)
        used = time.process_time() - began
        predicted = found.entries(test.rows, test.columns)
        low, high = found.interval(0.9, test.rows, test.columns, noisy=True)
        covered = np.mean((low <= test.values) & (test.values <= high))
        said = [
            f"{matrix.observed.shape} split {split}: RMSE {_rmse(predicted, test):.4f}, 90 % "
            f"intervals hold {covered:.3f}, noise {found.noise:.3f}, rank {found.rank}, "
            f"{found.seconds:.0f} s ({used:.0f} of CPU), peak memory {_peak():.2f} GB so far; "
            f"warnings: {found.findings}"
        ]
        for name, method in (
            ("biased mean", methods.biased_mean),
            ("SoftImpute-CV", methods.soft_impute_cv),
            ("BPMF", bpmf),
        ):
            began = time.process_time()
            other = method(matrix, 0, split)
            if other is not None:
                error = _rmse(other.mean[test.rows, test.columns], test)
                said.append(f"{name} {error:.4f} ({time.process_time() - began:.0f} s of CPU)")
        print("; ".join(said), flush=True)


def bpmf(matrix: matrices.Matrix, num_steps: int, seed: int) -> methods.Completed | None:
    """SMURFF's BPMF with 10 latent dimensions, centred, where it is installed."""
    try:
        import smurff
    except ImportError:
        return None
    from scipy.sparse import coo_matrix

    def sparse(part: Any) -> Any:
        mean = matrix.observed.values.mean()
        return coo_matrix((part.values - mean, (part.rows, part.columns)), part.shape)

    began = time.perf_counter()
    session = smurff.BPMFSession(
        Ytrain=sparse(matrix.observed),
        Ytest=sparse(matrix.test),
        num_latent=10,
        burnin=200,
        nsamples=400,
        verbose=0,
        seed=seed,
    )
    found = np.zeros(matrix.observed.shape)
    for prediction in session.run():
        found[tuple(prediction.coords)] = prediction.pred_avg
    return methods.Completed(found + matrix.observed.values.mean(), time.perf_counter() - began)


def _part(words: list[str]) -> tuple[tuple[int, int] | None, list[int]]:
    """The size of the block, and the splits: `300x500 0,1,2`, `all 1`."""
    size, splits = (words + ["300x500", "0,1,2"][len(words) :])[:2]
    rows, _, columns = size.partition("x")
    return None if size == "all" else (int(rows), int(columns)), [int(s) for s in splits.split(",")]


def _peak() -> float:
    """The largest resident memory of this process until now, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _rmse(found: np.ndarray, test: Any) -> float:
    return float(np.sqrt(np.mean((found - test.values) ** 2)))


if __name__ == "__main__":
    what, *words = sys.argv[1:] or ["rank5"]
    commands = {
        "rank5": rank5,
        "held-out": lambda: held_out(HELD_OUT),
        "held-out-again": lambda: held_out(HELD_OUT_AGAIN),
        "noise": noise,
        "nuclear": nuclear,
        "ratings": lambda: ratings(*_part(words)),
    }
    commands[what]()
