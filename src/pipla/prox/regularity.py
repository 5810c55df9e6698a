"""What theory wants to know of a term: whether it is convex, and its Lipschitz constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Regularity(NamedTuple):
    """What theory wants to know of a term; `None` where nothing is known.

    Attributes:
        convex: whether $g_2$ is convex in $(\\theta, x)$ together.
        lipschitz: a Lipschitz constant of $g_2$ in $(\\theta, x)$; `None` also where there is none.
    """

    convex: bool | None = None
    lipschitz: float | None = None


def disjoint_sum(parts: Sequence[Regularity]) -> Regularity:
    """Of a sum of terms on disjoint parts: its gradient is theirs, side by side."""
    convex = [part.convex for part in parts]
    lipschitz = [part.lipschitz for part in parts]
    known = None if None in lipschitz else math.hypot(*(each or 0.0 for each in lipschitz))
    return Regularity(False if False in convex else None if None in convex else True, known)
