"""The layers of a module that are latent: where they are, and the prior on each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla import _checks, _trees, prox
from pipla._trees import Path
from pipla.prox.base import Term

#: The priors that a layer may have; see `pipla.networks.model`.
Prior = Literal["laplace", "group", "group-inputs", "normal"]


@dataclasses.dataclass(frozen=True)
class Layer:
    """An array of weights under a prior of learned scale $e^{2\\alpha}$.

    `name` is its address in the module, such as `"layers/0"`; `path` leads to the array itself.
    Its first axis counts the outputs of the layer, the others its inputs.
    """

    name: str
    path: Path
    shape: tuple[int, ...]
    prior: Prior

    @property
    def fan_in(self) -> int:
        """The number of weights that enter one output."""
        return math.prod(self.shape[1:])

    def term(self) -> Term:
        r"""The prior; a weight has variance $2 e^{4\alpha}$, or $e^{4\alpha}$ if normal.

        A group of $k$ weights has the density $\propto e^{-c |x| e^{-2\alpha}}$, under which an
        element has variance $(k + 1) e^{4\alpha}/c^2$: $c^2 = (k + 1)/2$ makes it that of the
        Laplace density, which is the case $k = 1$.
        """
        if self.prior == "laplace":
            return prox.LaplaceScale()
        if self.prior == "normal":
            return prox.GaussianScale()
        axes = self.group_axes
        size = math.prod(self.shape[axis] for axis in axes)
        group = prox.GroupLasso(math.sqrt((size + 1) / 2), axes)
        return prox.Strength(group, rate=-2.0)

    @property
    def group_axes(self) -> tuple[int, ...]:
        """The axes of one group: what enters an output, or what leaves an input."""
        if self.prior == "group-inputs":
            return tuple(axis for axis in range(len(self.shape)) if axis != 1)
        return tuple(range(1, len(self.shape)))

    def first_scale(self) -> float:
        r"""The $\alpha$ for which a sum over the inputs keeps their size: variance 1/fan-in."""
        variance = 1 / self.fan_in
        return 0.25 * math.log(variance if self.prior == "normal" else variance / 2)

    def draw(self, rng: np.random.Generator, num: int, alpha: float, dtype: Any) -> Array:
        """Weights from the prior, but independent: a group would give all of its size away."""
        shape = (num, *self.shape)
        normal = self.prior == "normal"
        draws = rng.standard_normal(shape) if normal else rng.laplace(size=shape)
        return jnp.asarray(math.exp(2 * alpha) * draws, dtype)


def layers_of(module: PyTree, chosen: Any, prior: Any) -> tuple[Layer, ...]:
    """The latent layers: those that were chosen, or every `eqx.nn.Linear`."""
    _checks.choice("prior", prior, get_args(Prior))
    linear = {
        _name(_trees.path_keys(path)): prior
        for path, node in jax.tree_util.tree_leaves_with_path(module, is_leaf=_is_linear)
        if _is_linear(node)
    }
    if chosen is None:
        if not linear:
            raise ValueError(
                "layers=None puts the weights of every eqx.nn.Linear under the prior, but module "
                f"({type(module).__name__}) has none; name its layers by path, for example "
                '{"blocks/0/weight": "laplace"}.'
            )
        return tuple(_layer(module, name, family, linear) for name, family in linear.items())
    if isinstance(chosen, Mapping):
        pairs = list(chosen.items())
    elif isinstance(chosen, list | tuple) and chosen:
        pairs = [(address, prior) for address in chosen]
    else:
        raise TypeError(
            'layers must be None, a mapping from path to prior such as {"layers/0": "laplace"}, or '
            f"a list of paths, got {_checks.show(chosen)}."
        )
    if not pairs:
        raise ValueError("layers must name at least one layer, got an empty mapping.")
    found = tuple(_layer(module, address, family, linear) for address, family in pairs)
    for index, layer in enumerate(found):
        for other in found[:index]:
            if _trees.overlap(layer.path, other.path):
                raise ValueError(f"layers names {layer.name!r} twice.")
    return found


def _layer(module: PyTree, address: Any, prior: Any, linear: Any) -> Layer:
    _checks.choice(f"layers[{address!r}]", prior, get_args(Prior))
    keys = _keys(address)
    node = module
    for depth, key in enumerate(keys):
        parts = _trees.parts_of(node)
        # A list index may be written as text, in "layers/0".
        index = int(key) if isinstance(key, str) and key.isdigit() and key not in parts else key
        if index not in parts:
            known = ", ".join(map(repr, linear)) or "none"
            inside = "/".join(map(str, keys[:depth])) or type(module).__name__
            raise ValueError(
                f"layers names {_name(keys)!r}, but {inside} has no {key!r}; it has "
                f"{', '.join(map(str, parts)) or 'no parts'}. The linear layers are: {known}."
            )
        keys, node = (*keys[:depth], index, *keys[depth + 1 :]), parts[index]
    path = keys
    if not _checks.is_float(node):
        path, node = (*keys, "weight"), _trees.parts_of(node).get("weight")
    if not _checks.is_float(node):
        raise ValueError(
            f"layers names {_name(keys)!r}, which is neither an array of floats nor a layer with "
            "such a `weight`."
        )
    if prior in ("group", "group-inputs") and node.ndim < 2:
        raise ValueError(
            f"layers[{address!r}]: a group prior needs weights with at least two axes (outputs, "
            f"inputs), got shape {node.shape}."
        )
    return Layer(_name(keys), path, tuple(node.shape), prior)


def layer_named(layers: tuple[Layer, ...], address: Any) -> Layer:
    """The layer with this address."""
    name = _name(_keys(address))
    for layer in layers:
        if layer.name == name:
            return layer
    known = ", ".join(repr(layer.name) for layer in layers)
    raise ValueError(f"there is no latent layer {name!r}; they are {known}.")


def _keys(address: Any) -> Path:
    """A path as text with slashes, an index, or a tuple of names and indices."""
    if isinstance(address, str) and address.strip("/"):
        return tuple(address.strip("/").split("/"))
    if isinstance(address, int | np.integer) and not isinstance(address, bool):
        return (int(address),)
    if isinstance(address, tuple) and address:
        return tuple(key for each in address for key in _keys(each))
    raise TypeError(
        f'layers: a path is text such as "layers/0", or a tuple such as ("layers", 0); got '
        f"{_checks.show(address)}."
    )


def _name(path: Path) -> str:
    return "/".join(map(str, path))


def _is_linear(node: Any) -> bool:
    return isinstance(node, eqx.nn.Linear)


def network_dtype(module: PyTree) -> Any:
    """The dtype of the floats of a module."""
    leaves = [leaf for leaf in jax.tree.leaves(module) if _checks.is_float(leaf)]
    if not leaves:
        raise ValueError(
            f"module must have arrays of floats to learn, but {type(module).__name__} has none."
        )
    return jnp.result_type(*leaves)
