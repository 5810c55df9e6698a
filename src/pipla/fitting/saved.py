"""Fitted estimators on disk: numbers, names and no code.

What is saved are the arguments of an estimator and what `fit` has set. Reading builds a new
estimator of the class that was asked for and gives it these values: nothing is unpickled, and a
file cannot name a class that its reader does not expect.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import PyTree

from pipla.diagnostics import Finding, Severity
from pipla.engine import storage
from pipla.engine.archive import DamagedResultError
from pipla.engine.result import Result
from pipla.fitting.result import Fit


@dataclasses.dataclass(frozen=True)
class SavedEstimator:
    """What a file holds of an estimator; `load` of its class makes the estimator of it.

    Attributes:
        name: the name of its class.
        parameters: what its constructor takes.
        state: what `fit` has set.
        result, fit: the run that it comes from, where there is one.
    """

    name: str
    parameters: PyTree
    state: PyTree
    result: Result | None = None
    fit: Fit | None = None


class Saved(abc.ABC):
    """An estimator, or another answer, that can be written to a folder and read again.

    A subclass says in `_kinds` which classes (with fields, or enumerations) its state consists
    of, in `_state` what is saved, and in `_from_state` how it is put back.
    """

    @classmethod
    def _kinds(cls) -> tuple[type[Any], ...]:
        """The classes that a file may name."""
        return ()

    def save(self, path: str | Path) -> Path:
        """Write it to a folder of its own, in one step; `load` of its class reads it.

        A file holds numbers and names, no code.
        """
        parameters, state, runs = self._state()
        saved = SavedEstimator(
            name=type(self).__name__,
            parameters={key: _packed(key, value) for key, value in parameters.items()},
            state={key: _packed(key, value) for key, value in state.items()},
            **runs,
        )
        return storage.save(saved, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote. This is safe on files from strangers: nothing is executed.

        Raises:
            FileNotFoundError: there is nothing in this folder.
            DamagedResultError: there is, but it is incomplete, altered or not ours.
            TypeError: it is not of this class.
        """
        found = storage.load(path)
        name = found.name if isinstance(found, SavedEstimator) else type(found).__name__
        if name != cls.__name__:
            raise TypeError(f"path {str(path)!r} holds a {name}, not a {cls.__name__}.")
        expected: tuple[type[Any], ...] = (Finding, Severity, *cls._kinds())
        kinds = {kind.__name__: kind for kind in expected}
        try:
            parameters, state = (
                {key: _unpacked(value, kinds) for key, value in part.items()}
                for part in (found.parameters, found.state)
            )
            return cls._from_state(parameters, state, found)
        except DamagedResultError:
            raise
        except Exception as error:  # damage shows as any error of a constructor
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise DamagedResultError(
                f"the {cls.__name__} in {str(path)!r} is damaged: {reason}"
            ) from error

    @abc.abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Parameters, state, and `result` or `fit` where there is one."""

    @classmethod
    @abc.abstractmethod
    def _from_state(
        cls, parameters: dict[str, Any], state: dict[str, Any], found: SavedEstimator
    ) -> Self:
        """The inverse of `_state`."""


def attributes(estimator: Any, left_out: frozenset[str]) -> dict[str, Any]:
    """What `fit` has set on a scikit-learn estimator, without what is left out."""
    parameters = estimator.get_params(deep=False)
    return {
        name: value
        for name, value in vars(estimator).items()
        if name not in parameters and name not in left_out and not name.startswith("_skl")
    }


def _packed(name: str, value: Any) -> Any:
    """A value as a tree of what a file can hold; text and fields are marked."""
    if isinstance(value, Result | Fit):
        raise TypeError(f"{name} holds a {type(value).__name__}, which is saved on its own.")
    fields = _fields(value)
    if fields is not None:
        inner = {key: _packed(key, child) for key, child in fields.items()}
        return {"fields": {"kind": type(value).__name__, "values": inner}}
    if isinstance(value, enum.Enum):
        return {"member": {"kind": type(value).__name__, "value": value.value}}
    if isinstance(value, Mapping):
        # As pairs: a file sorts the names of a dict.
        return {"dict": [[str(key), _packed(str(key), child)] for key, child in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "UOT":
        if not all(isinstance(each, str) for each in value.ravel()):
            raise TypeError(f"{name} holds labels that are neither numbers nor text.")
        return {"text": [str(each) for each in value]}
    if isinstance(value, list | tuple):
        kind = type(value).__name__
        return {kind: [_packed(name, child) for child in value]}
    if value is None or isinstance(value, bool | int | str | float | np.ndarray | np.generic):
        return {"value": value}
    if isinstance(value, jax.Array):
        return {"value": np.asarray(value)}
    raise TypeError(
        f"{name} is a {type(value).__name__}, which a file cannot hold: save keeps numbers and "
        "names, no code."
    )


def _unpacked(packed: Any, kinds: dict[str, type[Any]]) -> Any:
    ((mark, value),) = packed.items()
    if mark == "fields":
        kind = kinds[value["kind"]]
        inner = {key: _unpacked(child, kinds) for key, child in value["values"].items()}
        return kind(**inner)
    if mark == "member":
        return kinds[value["kind"]](value["value"])
    if mark == "dict":
        return {key: _unpacked(child, kinds) for key, child in value}
    if mark in ("list", "tuple"):
        children = [_unpacked(child, kinds) for child in value]
        return children if mark == "list" else tuple(children)
    if mark == "text":
        return np.asarray(value, dtype=object if not value else None)
    if mark != "value":
        raise DamagedResultError(f"it has an unknown mark {mark!r}.")
    if isinstance(value, np.ndarray) and not value.ndim:
        return value[()].item()
    return value


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a named tuple or a dataclass by name; `None` for all else."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None


def check_consistent(saved: SavedEstimator) -> None:
    """Raise `DamagedResultError` where the parts of a file are not what they should be."""
    for name, part in (("parameters", saved.parameters), ("state", saved.state)):
        if type(part) is not dict or not all(type(each) is dict for each in part.values()):
            raise DamagedResultError(f"{name} are not values by name.")
    if saved.result is not None:
        storage.check_result(saved.result)
    if saved.fit is not None:
        from pipla.fitting.files import check_consistent as check_fit

        check_fit(saved.fit)
