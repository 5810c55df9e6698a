"""What a completed matrix has to say: its numbers, its columns, an image of it, its draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipla.report.inference_data import Draws
from pipla.report.outputs import Listing, Overview
from pipla.report.page import Figure
from pipla.report.plots import new_figure
from pipla.report.predictions import observed_against, some_rows

if TYPE_CHECKING:
    from pipla.completion.completing import Completion

EXPLAINED = (
    "noise: the standard deviation of what the matrix of low rank leaves over; mcse: its error by "
    "Monte Carlo, which more steps make smaller. Of each column: how many entries are observed and "
    "the mean width of the intervals of its missing entries, noise included. `interval` has the "
    "intervals of single entries."
)
SOURCES = {"held out": "chosen at held-out entries; no estimate of the noise"}
#: Images show at most this many rows and columns: a page has no more pixels.
MOST_PIXELS = 400
#: Draws of at most this many numbers are handed to ArviZ.
MOST_NUMBERS = 2**26


def names_of(found: Completion, given: Sequence[str] | None) -> list[str]:
    """The names of the columns: those given, or column 0, column 1, ..."""
    count = found.shape[1]
    if given is None:
        return [f"column {j}" for j in range(count)]
    if len(given) != count:
        raise ValueError(f"feature_names must hold {count} names, one for each column.")
    return [str(name) for name in given]


def overview_of(found: Completion, names: Sequence[str] | None, level: float) -> Overview:
    """What was learned, and the columns, those with the widest intervals first."""
    columns = columns_of(found, names, level)
    error = "" if found.noise_mcse is None else f"{found.noise_mcse:.1g}"
    numbers = [
        ["rows × columns", f"{found.shape[0]} × {found.shape[1]}", ""],
        ["observed", f"{len(found.observed.values)} ({100 * found.observed.share:.3g} %)", ""],
        ["rank", str(found.rank), ""],
        ["noise", f"{found.noise:.4g}", error],
        ["the noise was", SOURCES.get(found.noise_source, found.noise_source), ""],
    ]
    about = f"{100 * level:g} % interval"
    order = np.argsort(-np.nan_to_num(columns["width"][1:]), kind="stable") + 1
    rows = [
        [columns["name"][i], f"{columns['observed'][i]:.0f}", f"{columns['width'][i]:.3g}"]
        for i in order
    ]
    steps = 0 if found.result is None else found.result.num_steps
    return Overview(
        f"A completed matrix, prior {found.prior}",
        f"{found.shape[0]} × {found.shape[1]} entries, {steps} steps, {found.seconds:.1f} s.",
        found.findings,
        [
            Listing("What was learned", ["", "value", "mcse"], numbers, whole=True),
            Listing("Columns", ["column", "observed", f"width of {about}s"], rows),
        ],
        EXPLAINED,
    )


def columns_of(found: Completion, names: Sequence[str] | None, level: float) -> dict[str, Any]:
    """A row for the noise, and for each column."""
    called = names_of(found, names)
    seen = found.observed.mask()
    below, above = found.interval(level, noisy=True)
    gaps = np.sum(~seen, axis=0)
    width = np.where(seen, 0.0, above - below).sum(axis=0) / np.where(gaps, gaps, np.nan)
    error = np.nan if found.noise_mcse is None else found.noise_mcse
    return {
        "name": ["noise", *called],
        "part": ["parameter", *["column"] * len(called)],
        "estimate": np.append(found.noise, found.mean().mean(axis=0)),
        "mcse": np.append(error, np.full(len(called), np.nan)),
        "observed": np.append(len(found.observed.values), seen.sum(axis=0)),
        "width": np.append(np.nan, width),
        "level": level,
    }


def image_of(found: Completion, level: float, *, noisy: bool = True) -> Figure:
    """What is observed, the completed matrix, and the width of its intervals."""
    seen, given = found.observed.mask(), found.observed.averaged()
    low, high = found.interval(level, noisy=noisy)
    filled, width = np.where(seen, given, found.mean()), np.where(seen, 0.0, high - low)
    rows, columns = (np.linspace(0, n - 1, min(n, MOST_PIXELS)).astype(int) for n in found.shape)
    part = np.ix_(rows, columns)
    figure, axes = new_figure(3, width=11, height=4)
    titles = ("observed", "completed", f"width of the {100 * level:g} % intervals")
    for axis, values, title in zip(axes, (given, filled, width), titles, strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_axis_off()
        cmap = "magma" if title.startswith("width") else "viridis"
        image = axis.imshow(values[part], cmap=cmap, aspect="auto", interpolation="nearest")
        figure.colorbar(image, ax=axis, shrink=0.85)
    what = "missing entry, noise included" if noisy else "entry without noise"
    return Figure(
        figure, f"Observed entries, the completed matrix, and the intervals of each {what}."
    )


def figures_of(found: Completion, level: float) -> list[Figure]:
    """The image, and observations beside the matrix of low rank."""
    observed = found.observed
    rows = some_rows(len(observed.values))
    predicted = found.entries(observed.rows[rows], observed.columns[rows])
    return [image_of(found, level), observed_against(predicted, observed.values[rows])]


def draws_of(found: Completion, names: Sequence[str] | None) -> Mapping[str, Draws]:
    """The matrix and the noise in every draw, as one chain."""
    size = len(found.draws.noise) * found.shape[0] * found.shape[1]
    if size > MOST_NUMBERS:
        raise ValueError(
            f"to_arviz: the draws of this matrix are {size} numbers, more than {MOST_NUMBERS}; "
            "use `predict_draws(rows, columns)` for single entries."
        )
    matrix = found.draws.block(slice(None))[None]
    variables = {"matrix": matrix, "noise": np.asarray(found.draws.noise)[None]}
    called = names_of(found, names)
    return {"posterior": Draws(variables, {"matrix": ["row", "column"]}, {"column": called})}
