"""Sparse regressions beside what people use today: quality and time, in one process.

    python benchmarks/regression/compare.py                  # the tables
    python benchmarks/regression/compare.py --splits 3       # quicker
    python benchmarks/regression/compare.py --only large

Every method is called as its users would call it, with its defaults, on features scaled to
variance 1. Quality is the RMSE of predictions relative to the noise (simulations), relative to the
standard deviation of the response (diabetes), or the log-loss. `pip install skglm numpyro` and
R with glmnet and susieR (Debian: r-cran-glmnet, r-cran-susier) for all rows; what is not
installed is left out. The seconds of R include its start and the files, about half a second.
`--only held-out` are sets of labels that nothing was chosen by.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import ARDRegression, LassoCV, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from pipla.regression import SparseLinearRegression, SparseLogisticRegression

warnings.simplefilter("ignore")  # of all methods alike: convergence, deprecation


class Split(NamedTuple):
    """Data to fit, data to predict, and the unit of the error."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    unit: float = 1.0
    coefficients: np.ndarray | None = None


def simulated(
    seed: int, n: int, p: int, effects: int, dense: bool = False, correlation: float = 0.0
) -> Split:
    """As much noise as signal."""
    rng = np.random.default_rng(seed)

    def features(rows: int) -> np.ndarray:
        common = np.sqrt(correlation) * rng.standard_normal((rows, 1))
        return common + np.sqrt(1 - correlation) * rng.standard_normal((rows, p))

    x, b = features(n), np.zeros(p)
    if dense:
        b = rng.laplace(size=p)
    else:
        b[rng.choice(p, effects, replace=False)] = rng.standard_normal(effects)
    noise = float(np.std(x @ b))
    y = x @ b + noise * rng.standard_normal(n)
    x_test = features(2000)
    return Split(x, y, x_test, x_test @ b + noise * rng.standard_normal(2000), noise, b)


def simulated_labels(seed: int, n: int = 500, p: int = 2000, effects: int = 20) -> Split:
    """Effects of size 1 among many features."""
    rng = np.random.default_rng(seed)
    x, b = rng.standard_normal((n + 2000, p)), np.zeros(p)
    b[rng.choice(p, effects, replace=False)] = rng.standard_normal(effects)
    y = (rng.random(n + 2000) < 1 / (1 + np.exp(-x @ b))).astype(int)
    return Split(x[:n], y[:n], x[n:], y[n:], 1.0, b)


def split(x: np.ndarray, y: np.ndarray, seed: int) -> Split:
    """Three fifths to fit."""
    labels = y.dtype.kind == "i"
    parts = train_test_split(x, y, test_size=0.4, random_state=seed, stratify=y if labels else None)
    scaler = StandardScaler().fit(parts[0])
    unit = 1.0 if labels else float(np.std(y))
    return Split(scaler.transform(parts[0]), parts[2], scaler.transform(parts[1]), parts[3], unit)


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    chosen = np.isin(y, (3, 8))
    return x[chosen], (y[chosen] == 8).astype(int)


def numbers(seed: int) -> Iterator[tuple[str, Split]]:
    yield "n 200, p 1000, 10 effects", simulated(seed, 200, 1000, 10)
    yield "n 500, p 2000, 20 effects", simulated(seed, 500, 2000, 20)
    yield "n 500, p 200, Laplace effects", simulated(seed, 500, 200, 0, dense=True)
    yield "n 500, p 2000, correlation .95", simulated(seed, 500, 2000, 100, correlation=0.95)
    yield "diabetes", split(*load_diabetes(return_X_y=True), seed)


def labels(seed: int) -> Iterator[tuple[str, Split]]:
    yield "n 500, p 2000, 20 effects", simulated_labels(seed)
    yield "breast cancer", split(*load_breast_cancer(return_X_y=True), seed)
    yield "digits 3 v 8", split(*digits(), seed)


def held_out(seed: int) -> Iterator[tuple[str, Split]]:
    for first, second in ((2, 7), (1, 8), (5, 9), (0, 6)):
        x, y = load_digits(return_X_y=True)
        chosen = np.isin(y, (first, second))
        yield f"digits {first} v {second}", split(x[chosen], (y[chosen] == second) * 1, seed)
    yield "n 100, p 10, 3 effects", simulated_labels(seed, 100, 10, 3)
    x, y = load_wine(return_X_y=True)
    yield "wine 0 v rest", split(x, (y == 0) * 1, seed)


def mcp(data: Split) -> np.ndarray:
    """skglm's MCP; its users choose the penalty by cross-validation on a grid."""
    from skglm import MCPRegression
    from sklearn.model_selection import GridSearchCV

    top = np.max(np.abs(data.x.T @ (data.y - data.y.mean()))) / len(data.y)
    grid = {"alpha": top * np.geomspace(1, 0.02, 20)}
    search = GridSearchCV(MCPRegression(), grid, cv=5, scoring="neg_mean_squared_error")
    return search.fit(data.x, data.y).predict(data.x_test)


def nuts(data: Split, labels: bool) -> np.ndarray:
    """NumPyro's NUTS with Laplace coefficients and a half-Cauchy scale."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(x: Any, y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        with numpyro.plate("features", x.shape[1]):
            unit = numpyro.sample("unit", dist.Laplace(0.0, 1.0))
        b = numpyro.deterministic("b", scale * unit)
        eta = x @ b + numpyro.sample("level", dist.Normal(0.0, 10.0))
        if labels:
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)
        else:
            noise = numpyro.sample("noise", dist.HalfCauchy(1.0))
            numpyro.sample("y", dist.Normal(eta, noise), obs=y)

    centre, scale = (0.0, 1.0) if labels else (data.y.mean(), data.y.std())
    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=500, progress_bar=False)
    mcmc.run(jax.random.key(0), x=data.x, y=(data.y - centre) / scale)
    draws = mcmc.get_samples()
    eta = data.x_test @ np.asarray(draws["b"]).T + np.asarray(draws["level"])
    if labels:
        return np.mean(1 / (1 + np.exp(-eta)), axis=1)
    return centre + scale * eta.mean(axis=1)


Method = Callable[[Split], np.ndarray]


def in_r(data: Split, program: str) -> np.ndarray:
    """Predictions by R: x, y and x_test are matrices there, and `found` is returned."""
    if shutil.which("Rscript") is None:
        raise ImportError("R is not installed")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("x", "y", "x_test"):
            getattr(data, name).astype(np.float64).ravel(order="F").tofile(f"{folder}/{name}")
        rows, columns, tests = *data.x.shape, len(data.x_test)
        script = (
            f'get <- function(n, k) matrix(readBin(file.path("{folder}", n), "double", 1e8), k)\n'
            f'x <- get("x", {rows}); y <- drop(get("y", {rows}))\n'
            f'x_test <- get("x_test", {tests})\n'
            f"stopifnot(ncol(x) == {columns}); set.seed(0)\n{program}\n"
            f'writeBin(as.numeric(found), file.path("{folder}", "found"))\n'
        )
        done = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True)
        if done.returncode:
            raise ImportError(done.stderr)
        return np.fromfile(f"{folder}/found")


def glmnet(family: str) -> Method:
    """cv.glmnet at the penalty of the smallest error."""
    return lambda data: in_r(
        data,
        f'library(glmnet); m <- cv.glmnet(x, y, family = "{family}")\n'
        'found <- predict(m, x_test, s = "lambda.min", type = "response")',
    )


SUSIE = "library(susieR); m <- susie(x, y, L = 20); found <- predict(m, x_test)"
FOR_NUMBERS: dict[str, Method] = {
    "pipla": lambda d: SparseLinearRegression().fit(d.x, d.y).predict(d.x_test),
    "LassoCV": lambda d: LassoCV(alphas=100, cv=5).fit(d.x, d.y).predict(d.x_test),
    "ARDRegression": lambda d: ARDRegression().fit(d.x, d.y).predict(d.x_test),
    "skglm MCP, CV": mcp,
    "R cv.glmnet": glmnet("gaussian"),
    "R susieR": lambda d: in_r(d, SUSIE),
    "NumPyro NUTS": lambda d: nuts(d, labels=False),
}
FOR_LABELS: dict[str, Method] = {
    "pipla": lambda d: SparseLogisticRegression().fit(d.x, d.y).predict_proba(d.x_test)[:, 1],
    "LogisticRegressionCV": lambda d: (
        LogisticRegressionCV(l1_ratios=(1,), solver="liblinear", scoring="neg_log_loss", Cs=10)
        .fit(d.x, d.y)
        .predict_proba(d.x_test)[:, 1]
    ),
    "R cv.glmnet": glmnet("binomial"),
    "NumPyro NUTS": lambda d: nuts(d, labels=True),
}
#: Too slow for several splits, or for many features.
ONCE = {"NumPyro NUTS"}
MOST_FEATURES = {"ARDRegression": 300, "NumPyro NUTS": 300}


def compare(
    title: str, sets: Any, methods: dict[str, Method], splits: int, loss: Any, match: str
) -> None:
    """Mean loss, its standard error, and the ratio of times to pipla's."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for seed in range(splits):
        for name, data in sets(seed):
            if match not in name:
                continue
            for method, predict in methods.items():
                if (method in ONCE and seed) or data.x.shape[1] > MOST_FEATURES.get(method, 10**9):
                    continue
                began = time.perf_counter()
                try:
                    predicted = predict(data)
                except ImportError:
                    continue
                seconds = time.perf_counter() - began
                cell = found.setdefault(name, {}).setdefault(method, [])
                cell.append((loss(data, predicted), seconds))
    print(f"\n{title}, {splits} splits or seeds; seconds, and the ratio to pipla's\n")
    for name, row in found.items():
        print(name)
        ours = np.mean([seconds for _, seconds in row["pipla"]])
        for method, cell in row.items():
            losses, seconds = np.array(cell).T
            error = losses.std(ddof=1) / np.sqrt(len(losses)) if len(losses) > 1 else np.nan
            paired = losses - np.array(row["pipla"])[: len(losses), 0]
            gap = paired.std(ddof=1) / np.sqrt(len(paired)) if len(paired) > 1 else np.nan
            print(
                f"  {method:22} {losses.mean():.4f} ± {error:.4f}   less pipla's "
                f"{paired.mean():+.4f} ± {gap:.4f}   {seconds.mean():7.2f} s "
                f"{seconds.mean() / ours:7.2f}x",
                flush=True,
            )


def large() -> None:
    """p = 20 000 dense, and 20 000 × 100 000 sparse."""
    import resource

    import scipy.sparse

    data = simulated(0, 500, 20_000, 20)
    began = time.perf_counter()
    SparseLinearRegression().fit(data.x, data.y)
    print(f"\nn 500, p 20 000: {time.perf_counter() - began:.1f} s")
    rng = np.random.default_rng(0)
    x = scipy.sparse.random_array((20_000, 100_000), density=1e-3, rng=rng, format="csr")
    x.data = rng.standard_normal(x.nnz)
    b = np.zeros(100_000)
    b[:100] = 3 * rng.standard_normal(100)
    for kind, y in (
        (SparseLinearRegression, x @ b + 0.3 * rng.standard_normal(20_000)),
        (SparseLogisticRegression, (x @ b + rng.logistic(size=20_000) > 0).astype(int)),
    ):
        began = time.perf_counter()
        model = kind().fit(x, y)
        seconds = time.perf_counter() - began
        found = int(np.sum(model.inclusion_.ravel()[:100] > 0.5))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{kind.__name__}, sparse 20 000 × 100 000: {seconds:.1f} s, peak {peak:.2f} GiB, "
            f"{found} of 100 effects found"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", default="numbers,labels,large")
    parser.add_argument("--match", default="", help="only sets whose name contains this")
    parser.add_argument("--methods", default="", help="only these (and pipla), by commas")
    options = parser.parse_args()
    for methods in (FOR_NUMBERS, FOR_LABELS):
        for name in set(methods) - {"pipla", *options.methods.split(",")}:
            if options.methods:
                del methods[name]
    parts = options.only.split(",")
    warm = simulated_labels(0, n=40, p=5, effects=1)  # compile, or read from the cache
    SparseLinearRegression().fit(warm.x, warm.y)
    SparseLogisticRegression().fit(warm.x, warm.y)

    def rmse(data: Split, predicted: np.ndarray) -> float:
        return float(np.sqrt(np.mean((data.y_test - predicted) ** 2))) / data.unit

    def logistic_loss(data: Split, predicted: np.ndarray) -> float:
        return float(log_loss(data.y_test, predicted))

    if "numbers" in parts:
        compare("RMSE", numbers, FOR_NUMBERS, options.splits, rmse, options.match)
    if "labels" in parts:
        compare("Log-loss", labels, FOR_LABELS, options.splits, logistic_loss, options.match)
    if "held-out" in parts:
        compare("Log-loss", held_out, FOR_LABELS, options.splits, logistic_loss, options.match)
    if "large" in parts:
        large()


if __name__ == "__main__":
    main()
