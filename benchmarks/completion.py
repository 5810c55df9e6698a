"""Completion of matrices of known rank, and of ratings: errors, intervals, noise, rank, seconds.

    python benchmarks/completion.py rank5            # the default prior beside SoftImpute-CV
    python benchmarks/completion.py held-out         # other shapes, ranks and patterns of gaps
    python benchmarks/completion.py nuclear          # the paper's prior on the same matrices
    PIPLA_DATA=... python benchmarks/completion.py ratings [300 500]

SMURFF's BPMF is beside the ratings, if it is installed (`pip install smurff`). The penalty of
SoftImpute is chosen on a path with a warm start, at 15 % of the observations.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import numpy as np

from pipla.completion import Triplets, complete
from pipla.completion._observations import as_observed
from pipla.experiments.completion import matrices, methods, peers

SEEDS = 5


def low_rank(
    shape: tuple[int, int], rank: int, seed: int, share: float = 0.5, pattern: str = "random"
) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal factors, noise of standard deviation 1, gaps at random or by rows."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    seen = rng.random(shape) < share
    if pattern == "rows":  # some rows are nearly full, others nearly empty
        seen = rng.random(shape) < np.linspace(0.15, 2 * share - 0.15, shape[0])[:, None]
    return truth, np.where(seen, truth + rng.standard_normal(shape), np.nan)


def compare(name: str, truth: np.ndarray, observed: np.ndarray, seed: int, soft: bool) -> list[Any]:
    missing = np.isnan(observed)

    def nmse(found: np.ndarray) -> float:
        return float(100 * np.sum((found - truth)[missing] ** 2) / np.sum(truth[missing] ** 2))

    found = complete(observed, seed=seed, progress=False)
    low, high = found.interval(0.9)
    covered = float(np.mean(((low <= truth) & (truth <= high))[missing]))
    ours = nmse(found.fill(observed))
    theirs = nmse(peers.soft_impute_cv(as_observed(observed), seed)) if soft else np.nan
    print(
        f"{name} seed {seed}: NMSE missing {ours:6.2f} %, SoftImpute-CV {theirs:6.2f} %, ratio "
        f"{ours / theirs:.2f}; 90 % intervals hold {covered:.3f}; noise {found.noise:.3f}; rank "
        f"{found.rank}; {found.seconds:.1f} s {' '.join(found.warnings)}",
        flush=True,
    )
    return [ours / theirs, covered, found.noise, found.rank]


def rank5() -> None:
    for shape in ((60, 40), (200, 150)):
        rows = [
            compare(f"{shape[0]} × {shape[1]}", *low_rank(shape, 5, seed), seed, True)
            for seed in range(SEEDS)
        ]
        ratio, covered, noise, rank = np.array(rows).T
        print(
            f"{shape}: ratio {ratio.mean():.2f} ({ratio.max():.2f} at worst), intervals hold "
            f"{covered.mean():.3f} ({covered.min():.3f} to {covered.max():.3f}), noise "
            f"{noise.min():.3f} to {noise.max():.3f}, ranks {rank.astype(int).tolist()}"
        )


def held_out() -> None:
    for shape, rank, share, pattern in (
        ((40, 60), 3, 0.5, "random"),
        ((120, 80), 8, 0.5, "random"),
        ((100, 100), 1, 0.3, "random"),
        ((150, 100), 5, 0.5, "rows"),
        ((150, 100), 12, 0.6, "random"),
        ((30, 200), 2, 0.4, "rows"),
    ):
        name = f"{shape[0]} × {shape[1]}, rank {rank}, {share:.0%} seen, gaps: {pattern};"
        for seed in range(2):
            compare(name, *low_rank(shape, rank, seed, share, pattern), seed, True)


def nuclear() -> None:
    """Its error and intervals, and the noise that it "learns" by the step."""
    for seed in range(2):
        truth, observed = low_rank((60, 40), 5, seed)
        missing = np.isnan(observed)
        found = complete(observed, prior="nuclear", noise=1.0, num_steps=600, progress=False)
        low, high = found.interval(0.9)
        error = 100 * np.sum((found.mean() - truth)[missing] ** 2) / np.sum(truth[missing] ** 2)
        covered = np.mean(((low <= truth) & (truth <= high))[missing])
        noises = methods.learned_noises(as_observed(observed), (1.0, 2.0, 8.0), 1000)
        print(
            f"60 × 40 seed {seed}: nuclear norm at the true noise: NMSE missing {error:.1f} %, "
            f"90 % intervals hold {covered:.3f}; “learned” noise by step: "
            + ", ".join(f"{noise:.3f} at {step:.4f}" for step, noise in noises),
            flush=True,
        )


def ratings(size: tuple[int, int] | None) -> None:
    for split in range(3):
        matrix = matrices.ratings(size, split)
        test = matrix.test
        assert test is not None
        found = complete(Triplets(*matrix.observed), seed=split, progress=False)
        predicted = found.entries(test.rows, test.columns)
        low, high = found.interval(0.9, test.rows, test.columns, noisy=True)
        covered = np.mean((low <= test.values) & (test.values <= high))
        said = [
            f"{matrix.observed.shape} split {split}: RMSE {_rmse(predicted, test):.4f}, 90 % "
            f"intervals hold {covered:.3f}, noise {found.noise:.3f}, rank {found.rank}, "
            f"{found.seconds:.0f} s"
        ]
        for name, method in (
            ("biased mean", methods.biased_mean),
            ("SoftImpute-CV", methods.soft_impute_cv),
            ("BPMF", bpmf),
        ):
            began = time.perf_counter()
            other = method(matrix, 0, split)
            if other is not None:
                error = _rmse(other.mean[test.rows, test.columns], test)
                said.append(f"{name} {error:.4f} ({time.perf_counter() - began:.0f} s)")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print("; ".join(said) + f"; peak memory {peak:.2f} GB", flush=True)


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


def _rmse(found: np.ndarray, test: Any) -> float:
    return float(np.sqrt(np.mean((found - test.values) ** 2)))


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["rank5"]
    if what == "ratings":
        ratings((int(numbers[0]), int(numbers[1])) if numbers else None)
    else:
        {"rank5": rank5, "held-out": held_out, "nuclear": nuclear}[what]()
