"""What people use today, each method called as its users would call it, with its defaults.

A method takes a `Split` and returns predictions for its test features: numbers, or the probability
of the label 1. One that is not installed raises ImportError.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from data_sets import Split
from sklearn.linear_model import ARDRegression, LassoCV, LogisticRegressionCV

from pipla.regression import SparseLinearRegression, SparseLogisticRegression

Method = Callable[[Split], np.ndarray]


def mcp(data: Split) -> np.ndarray:
    """skglm's MCP; its users choose the penalty by cross-validation on a grid."""
    from skglm import MCPRegression
    from sklearn.model_selection import GridSearchCV

    top = np.max(np.abs(data.x.T @ (data.y - data.y.mean()))) / len(data.y)
    grid = {"alpha": top * np.geomspace(1, 0.02, 20)}
    search = GridSearchCV(MCPRegression(), grid, cv=5, scoring="neg_mean_squared_error")
    return search.fit(data.x, data.y).predict(data.x_test)


def nuts(data: Split, labels: bool, horseshoe: bool) -> np.ndarray:
    """NumPyro's NUTS, one chain: Laplace coefficients or a horseshoe, with a half-Cauchy scale."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(x: Any, y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        with numpyro.plate("features", x.shape[1]):
            if horseshoe:
                unit = numpyro.sample("unit", dist.Normal(0.0, 1.0))
                unit = unit * numpyro.sample("local", dist.HalfCauchy(1.0))
            else:
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
    "NUTS, Laplace": lambda d: nuts(d, labels=False, horseshoe=False),
    "NUTS, horseshoe": lambda d: nuts(d, labels=False, horseshoe=True),
}
FOR_LABELS: dict[str, Method] = {
    "pipla": lambda d: SparseLogisticRegression().fit(d.x, d.y).predict_proba(d.x_test)[:, 1],
    "LogisticRegressionCV": lambda d: (
        LogisticRegressionCV(l1_ratios=(1,), solver="liblinear", scoring="neg_log_loss", Cs=10)
        .fit(d.x, d.y)
        .predict_proba(d.x_test)[:, 1]
    ),
    "R cv.glmnet": glmnet("binomial"),
    "NUTS, Laplace": lambda d: nuts(d, labels=True, horseshoe=False),
    "NUTS, horseshoe": lambda d: nuts(d, labels=True, horseshoe=True),
}
#: Too slow for several splits: one is enough for the ratio of times.
ONCE = {"NUTS, Laplace", "NUTS, horseshoe"}
#: Too slow for more features than this.
MOST_FEATURES = {"ARDRegression": 1000}


def warm() -> None:
    """Compile what is compiled once, or read it from the cache."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 5))
    data = Split(x, (x[:, 0] + rng.standard_normal(40) > 0).astype(int), x, x[:, 0])
    SparseLinearRegression().fit(data.x, data.y)
    SparseLogisticRegression().fit(data.x, data.y)
    with contextlib.suppress(ImportError):
        mcp(data._replace(y=data.y.astype(float)))
