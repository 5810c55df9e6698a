"""A fit as a table, at 80 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import jax
import numpy as np

from pipla import _trees

if TYPE_CHECKING:
    from pipla.fitting.result import Fit

WIDTH = 80


def summary_of(fit: Fit, most: int) -> str:
    """The table of `Fit.summary`."""
    verdict = "converged" if fit.converged else "NOT CONVERGED"
    lines = [
        f"{verdict} after {fit.num_steps} steps of {fit.num_particles} particles "
        f"({fit.seconds:.1f} s, {fit.compile_seconds:.1f} s to compile)",
        "",
        f"{'':<22}{'estimate':>10}{'std. error':>11}{'95 % interval':>20}{'mcse':>9}{'bias':>8}",
    ]
    columns = (fit.theta, fit.theta_stderr, *fit.theta_interval, fit.theta_mcse, fit.theta_bias)
    rows = np.stack([_flat(column) for column in columns], axis=1)
    for name, (value, error, low, high, mcse, bias) in zip(
        _trees.leaf_names("theta", fit.theta), rows, strict=True
    ):
        interval = _interval(low, high)
        lines.append(
            f"{_short(name):<22}{value:>10.4g}{error:>11.3g}{interval:>20}{mcse:>9.2g}{bias:>8.1g}"
        )
    for name, (value, low, high) in fit.parameters.items():
        lines.append(f"{_short(name):<22}{value:>10.4g}{'':>11}{_interval(low, high):>20}")
    lines += ["", f"{'':<22}{'mean':>10}{'sd':>11}{'5 % to 95 %':>20}"]
    names = _trees.leaf_names("x", fit.x_mean)
    table = np.stack([_flat(c) for c in (fit.x_mean, fit.x_sd, *fit.x_interval)], axis=1)
    for name, (mean, sd, low, high) in list(zip(names, table, strict=True))[:most]:
        lines.append(f"{_short(name):<22}{mean:>10.4g}{sd:>11.3g}{_interval(low, high):>20}")
    if len(names) > most:
        lines.append(f"… {len(names) - most} more of {len(names)}")
    for title, sentences in (("chosen", fit.reasons), ("WARNING", fit.warnings)):
        for sentence in sentences:
            lines += ["", *textwrap.wrap(f"{title}: {sentence}.", WIDTH)]
    return "\n".join(lines)


def _flat(tree: object) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def _interval(low: float, high: float) -> str:
    return f"[{low:.3g}, {high:.3g}]"


def _short(name: str) -> str:
    return name if len(name) <= 21 else "…" + name[-20:]
