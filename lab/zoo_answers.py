"""Compute the answers of `pipla_lab.zoo` and store them in the package.

    python lab/zoo_answers.py [NAME ...]

All problems, or those named; the others keep their answers. The methods are in `lab/answers`:
NumPy and SciPy in float64, and nothing of pipla but the data and, at the end, the potential of the
model, which must be the one that was integrated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from answers import constrained, gibbs, hamiltonian, products
from answers.base import Data, Found, rounded
from pipla_lab.zoo.base import ANSWERS, Case, fingerprint
from pipla_lab.zoo.catalogue import cases

METHODS: dict[str, Callable[[Data], Found]] = {
    "laplace-location": products.laplace_location,
    "laplace-location-weak-data": products.laplace_location,
    "laplace-location-far-start": products.laplace_location,
    "laplace-location-binomial": products.laplace_location_binomial,
    "elastic-net-location": products.elastic_net_location,
    "gaussian-location": products.gaussian_location,
    "laplace-scale": products.laplace_scale,
    "laplace-scale-weak-data": products.laplace_scale,
    "laplace-scale-learned-noise": products.laplace_scale_learned_noise,
    "laplace-scale-poisson": products.laplace_scale_poisson,
    "l1-student-noise": products.l1_student_noise,
    "laplace-scale-no-noise": products.laplace_scale_no_noise,
    "uniform-half-width": constrained.uniform_half_width,
    "uniform-log-half-width": constrained.uniform_log_half_width,
    "box-learned-noise": constrained.box_learned_noise,
    "nonnegative-poisson": constrained.nonnegative_poisson,
    "simplex-learned-noise": constrained.simplex_learned_noise,
    "lasso": gibbs.lasso,
    "lasso-wide": gibbs.lasso_wide,
    "lasso-correlated": gibbs.lasso,
    "lasso-ill-conditioned": gibbs.lasso,
    "diabetes": gibbs.diabetes,
    "l1-learned-noise": gibbs.l1_learned_noise,
    "elastic-net-learned-noise": gibbs.elastic_net_learned_noise,
    "group-lasso": gibbs.group_lasso,
    "two-scales": gibbs.two_scales,
    "logistic-location": hamiltonian.logistic_location,
    "logistic-uniform": hamiltonian.logistic_uniform,
    "breast-cancer": hamiltonian.breast_cancer,
    "poisson-regression": hamiltonian.poisson_regression,
    "tv-signal": gibbs.total_variation,
    "tv-signal-learned-noise": gibbs.total_variation,
    "tv-image": gibbs.total_variation,
    "tv-image-no-noise": gibbs.total_variation_without_noise,
    "tv-blur": gibbs.total_variation,
    "tv-blur-learned-noise": gibbs.total_variation,
    "tv-mask": gibbs.total_variation,
    "nuclear-denoising": hamiltonian.nuclear,
    "nuclear-completion": hamiltonian.nuclear,
}


def unraveled(vector: np.ndarray, like: Any) -> Any:
    """The last axis of the array in the structure and shapes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = np.split(vector, ends, axis=-1)
    shaped = [
        part.reshape((*part.shape[:-1], *np.shape(leaf)))
        for part, leaf in zip(parts, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, shaped)


def check_density(case: Case, found: Found) -> None:
    """The method's potential is the model's, up to a constant, at points like those sampled."""
    rng = np.random.default_rng(0)
    theta = np.where(np.isfinite(found.theta), found.theta, -1.0)
    differences, size = [], 0.0
    for _ in range(6):
        at = theta + 0.1 * rng.standard_normal(theta.shape)
        # Between the quantiles, so that constraints hold.
        share = rng.uniform(size=found.x_mean.shape)
        x = share * found.x_quantiles[0] + (1 - share) * found.x_quantiles[2]
        if not found.identifiable:
            x = x + rng.standard_normal(x.shape)
        if "Simplex" in type(case.model.nonsmooth).__name__:
            x = x / x.sum()
        if "Uniform" in type(case.model.nonsmooth).__name__:
            x, at = 0.9 * x, np.maximum(at, theta)
        model = case.model.potential(unraveled(at, case.theta), unraveled(x, case.x))
        own = found.potential(at, x)
        differences.append(float(model) - own)
        size = max(size, abs(own))
    assert np.ptp(differences) < 1e-7 * (1 + size), differences


def stored(case: Case, found: Found) -> dict[str, Any]:
    """The answer as JSON; the numbers with their significant digits."""

    def tree(values: np.ndarray, like: Any, digits: int) -> Any:
        if np.ndim(values) == 0:  # one number for all
            return jax.tree.map(lambda _: rounded(values, digits), like)
        return jax.tree.map(lambda part: rounded(part, digits), unraveled(values, like))

    def error(values: np.ndarray, of: np.ndarray) -> Any:
        # Not smaller than what rounding to seven digits adds.
        return tree(np.maximum(values, 5e-8 * np.max(np.abs(of))), case.x, 2)

    return {
        "theta": tree(found.theta, case.theta, 12),
        "theta_error": tree(found.theta_error, case.theta, 2),
        "theta_stderr": tree(found.theta_stderr, case.theta, 5),
        "x_mean": tree(found.x_mean, case.x, 7),
        "x_mean_error": error(found.x_mean_error, found.x_mean),
        "x_sd": tree(found.x_sd, case.x, 7),
        "x_sd_error": error(found.x_sd_error, found.x_sd),
        "x_quantiles": tree(found.x_quantiles, case.x, 7),
        "x_quantiles_error": error(found.x_quantiles_error, found.x_quantiles),
        "how": found.how,
        "identifiable": found.identifiable,
        "data": fingerprint(case.data),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them by default")
    names = parser.parse_args(arguments).names or list(METHODS)
    jax.config.update("jax_enable_x64", True)
    for name in names:
        began = time.perf_counter()
        case = cases()[name]()
        found = METHODS[name](case.data)
        check_density(case, found)
        answers = json.loads(ANSWERS.read_text("utf-8")) if ANSWERS.exists() else {}
        answers[name] = stored(case, found)
        answers = {key: answers[key] for key in cases() if key in answers}
        lines = [
            f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}"
            for key, value in answers.items()
        ]
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
        with np.errstate(invalid="ignore", divide="ignore"):
            share = found.theta_error / found.theta_stderr
            worst = [
                float(np.nanmax(error / found.x_sd))
                for error in (found.x_mean_error, found.x_sd_error, found.x_quantiles_error)
            ]
        print(
            f"{name}: theta {found.theta} ± {found.theta_stderr}, error {share} of it; x errors "
            f"in sd: mean {worst[0]:.2g}, sd {worst[1]:.2g}, quantiles {worst[2]:.2g}; "
            f"{found.notes} {time.perf_counter() - began:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
