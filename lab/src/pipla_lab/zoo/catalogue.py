"""All problems of the zoo by name."""

from __future__ import annotations

import functools
from collections.abc import Callable

from pipla_lab.zoo.base import Case


@functools.cache
def cases() -> dict[str, Callable[[], Case]]:
    """The functions that make the problems, kind by kind."""
    # Imported here, so that `import pipla` does not read files that few programs need.
    from pipla_lab.zoo import (
        constraints,
        counts_and_classes,
        images,
        linear,
        locations,
        matrices,
        sequences,
    )

    kinds = (locations, sequences, constraints, linear, counts_and_classes, images, matrices)
    return {name: make for kind in kinds for name, make in kind.PROBLEMS.items()}
