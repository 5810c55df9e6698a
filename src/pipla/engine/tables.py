"""A sweep as a table: one row per setting to print, one per run for pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pipla import _trees

if TYPE_CHECKING:
    from pipla.engine.sweep import SweepResult

#: At most this many settings are printed.
MOST_ROWS = 20
#: A leaf of theta with more numbers than this has no columns in a data frame.
MOST_COLUMNS = 100


def table(sweep: SweepResult) -> list[str]:
    """A title and a table: for each setting its numbers, theta ± error, and how many are finite.

    Theta is the mean over the replicates that stayed finite, and the error that of this mean, from
    the Monte-Carlo errors of the runs. Of theta the first numbers are shown.
    """
    settings, replicates = sweep.finite.shape
    title = (
        f"SweepResult({settings} settings × {replicates} replicates, {sweep.num_steps} steps, "
        f"{int(sweep.finite.sum())} of {sweep.finite.size} finite, {sweep.seconds:.2f} s, "
        f"{sweep.status.value})"
    )
    varying = _varying(sweep)
    thetas = _first_numbers(sweep)
    rows = [["", *varying, "theta", "finite"]]
    for number in range(min(settings, MOST_ROWS)):
        finite = sweep.finite[number]
        row = [str(number), *(f"{values[number, 0]:.4g}" for values in varying.values())]
        if thetas is None or not finite.any():
            row.append("-")
        else:
            mean, error = (values[number, finite] for values in thetas)
            error = np.sqrt(np.sum(error**2, axis=0)) / len(error)
            row.append(f"{_trees.brief(mean.mean(axis=0))} ± {_trees.brief(error)}")
        rows.append([*row, f"{int(finite.sum())}/{replicates}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [title]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    more = settings - MOST_ROWS
    return [*lines, f"... and {more} more settings"] if more > 0 else lines


def columns(sweep: SweepResult) -> dict[str, Any]:
    """The columns of a data frame: one row per run, replicates fastest."""
    settings, replicates = sweep.finite.shape
    found: dict[str, Any] = {
        "setting": np.repeat(np.arange(settings), replicates),
        "replicate": np.tile(np.arange(replicates), settings),
    }
    found |= {name: values.reshape(-1) for name, values in _varying(sweep).items()}
    means = _trees.split(sweep.theta)[0]
    for label, tree in (("", means), ("_mcse", sweep.theta_mcse)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            numbers = leaf.reshape(settings * replicates, -1)
            name = f"theta{label}{jax.tree_util.keystr(path)}"
            if leaf.ndim == 2:
                found[name] = numbers[:, 0]
            elif numbers.shape[1] <= MOST_COLUMNS:
                for index in np.ndindex(leaf.shape[2:]):
                    found[f"{name}[{', '.join(map(str, index))}]"] = leaf[:, :, *index].reshape(-1)
    for name in ("finite", "last_finite", "prox_gap"):
        found[name] = np.asarray(getattr(sweep, name)).reshape(-1)
    return found


def _varying(sweep: SweepResult) -> dict[str, np.ndarray]:
    """The numbers of the algorithms that differ between settings: settings × replicates."""
    if sweep.algorithms is None:
        return {}
    grid, found = sweep.finite.shape, {}
    for name, values in sweep.algorithms.numbers().items():
        numbers = np.asarray(values)
        if numbers.shape == (sweep.finite.size,) and not np.all(numbers == numbers[0]):
            found[name] = numbers.reshape(grid)
    return found


def _first_numbers(sweep: SweepResult) -> tuple[np.ndarray, np.ndarray] | None:
    """Means and errors of the first few numbers of theta with a trace: settings, replicates, all.

    Errors of numbers that are not shown would take long.
    """
    from pipla.diagnostics import monte_carlo_error

    traces = [
        leaf[:, :, sweep.burn_in :].reshape(*leaf.shape[:2], leaf.shape[2] - sweep.burn_in, -1)
        for leaf in jax.tree.leaves(sweep.theta_trace)
    ]
    if not traces:
        return None
    first = np.concatenate([leaf[..., :5] for leaf in traces], axis=-1)[..., :5]
    errors = monte_carlo_error(np.moveaxis(first, 2, 0))
    return first.mean(axis=2, dtype=np.float64), errors
