"""The numbers of pytrees by name, and tables of them at 80 columns."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

#: The columns of a terminal.
WIDTH = 80
#: Between two columns.
_GAP = "  "


class Numbers(NamedTuple):
    """The first numbers of some trees that are alike: a row per number, a column per tree."""

    names: list[str]
    values: Float[np.ndarray, "numbers trees"]
    total: int  # in each of the trees, shown or not


def numbers_of(name: str, trees: Sequence[PyTree], most: int | None = None) -> Numbers:
    """The first `most` numbers of each tree (all by default), named after the first tree.

    Leaves that are not arrays of floats, such as settings of a module, do not count.

    >>> numbers_of("x", [{"a": np.ones(2), "b": np.zeros(())}]).names
    ["x['a'][0]", "x['a'][1]", "x['b']"]
    """
    leaves = [list(filter(_is_float, jax.tree.leaves(tree))) for tree in trees]
    total = sum(leaf.size for leaf in leaves[0])
    most = total if most is None else min(most, total)
    paths = [
        (name + jax.tree_util.keystr(path), np.shape(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(trees[0])
        if _is_float(leaf)
    ]
    every = (
        f"{whole}[{', '.join(map(str, index))}]" if index else whole
        for whole, shape in paths
        for index in np.ndindex(shape)
    )
    columns = [np.concatenate([np.ravel(leaf)[:most] for leaf in tree])[:most] for tree in leaves]
    return Numbers(list(itertools.islice(every, most)), np.stack(columns, axis=1), total)


def _is_float(leaf: Any) -> bool:
    return getattr(getattr(leaf, "dtype", None), "kind", "") == "f"


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table at 80 columns: names on the left, shortened where they must be; numbers flush right.

    >>> aligned(["", "mean"], [["x[0]", "1"], ["x[1]", "-2.5"]])
    ['      mean', 'x[0]     1', 'x[1]  -2.5']
    """
    cells = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = WIDTH - sum(len(_GAP) + width for width in widths[1:])
    widths[0] = min(widths[0], max(room, 8))
    lines = []
    for name, *values in cells:
        short = name if len(name) <= widths[0] else "…" + name[1 - widths[0] :]
        right = (value.rjust(width) for value, width in zip(values, widths[1:], strict=True))
        lines.append(_GAP.join([short.ljust(widths[0]), *right]).rstrip())
    return lines


def interval(low: float, high: float) -> str:
    """Both ends, as a cell.

    >>> interval(-0.12345, 2.0)
    '[-0.123, 2]'
    """
    return f"[{low:.3g}, {high:.3g}]"


def more(shown: int, total: int, how: str = "") -> list[str]:
    """A line that says how many numbers a table leaves out, and how to see them, if any."""
    if shown >= total:
        return []
    return [f"… {total - shown} more of {total}" + (f"; {how}" if how else "")]


def paragraph(text: str) -> list[str]:
    """A blank line and the text in lines of 80 columns."""
    return ["", *textwrap.wrap(text, WIDTH)]
