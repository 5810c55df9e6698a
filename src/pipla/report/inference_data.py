"""Draws for ArviZ, whichever of its two generations is installed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from pipla._extras import extra

#: Draws by the name of the variable.
Variables = dict[str, Float[np.ndarray, "chain draw ..."]]


class Draws(NamedTuple):
    """Draws of some variables with the names of their axes.

    Attributes:
        variables: by name; their first two axes are chains and draws.
        dims: the names of the other axes of a variable, where they have names.
        coords: what the places along such an axis are called.
    """

    variables: Variables
    dims: dict[str, list[str]] = {}  # noqa: RUF012, which is never changed
    coords: dict[str, list[str]] = {}  # noqa: RUF012


def variables(name: str, tree: PyTree) -> Variables:
    """The leaves of a tree by name; their first two axes are chains and draws.

    >>> list(variables("theta", {"prior": np.zeros((1, 5)), "noise": np.zeros((1, 5))}))
    ['theta.noise', 'theta.prior']
    """
    return {
        ".".join([name, *([inner] if inner else [])]): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        for inner in [jax.tree_util.keystr(path, simple=True, separator=".")]
    }


def inference_data(groups: Mapping[str, Variables | Draws]) -> Any:
    """What ArviZ plots and summarises: a `DataTree` for ArviZ 1, an `InferenceData` before.

    Arguments:
        groups: draws by group and by variable.
    """
    given = {
        name: group if isinstance(group, Draws) else Draws(group) for name, group in groups.items()
    }
    dims = {name: axes for group in given.values() for name, axes in group.dims.items()}
    coords = {name: ticks for group in given.values() for name, ticks in group.coords.items()}
    with extra("arviz", "to_arviz"):
        if _has_old_arviz():
            import arviz
        else:
            import arviz_base
    with warnings.catch_warnings():
        # The old one does not know the group "theta", and both expect more draws than chains.
        warnings.simplefilter("ignore", UserWarning)
        if not _has_old_arviz():
            draws = {name: group.variables for name, group in given.items()}
            return arviz_base.from_dict(draws, dims=dims, coords=coords, check_conventions=False)
        data = {
            name: arviz.dict_to_dataset(group.variables, dims=group.dims, coords=group.coords)
            for name, group in given.items()
        }
        return arviz.InferenceData(**data)


def _has_old_arviz() -> bool:
    """Whether ArviZ is there in a version before 1, which does not read a `DataTree`."""
    try:
        return int(metadata.version("arviz").split(".")[0]) < 1
    except metadata.PackageNotFoundError:
        return False
