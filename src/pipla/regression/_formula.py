"""Formulas in the manner of R, `"y ~ age * sex + C(city)"`, by formulaic."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from pipla._dialects import listed
from pipla._extras import extra

#: The column of ones, which estimators have themselves.
INTERCEPT = "Intercept"


class Formula(NamedTuple):
    """The right-hand side of a formula as fitted: levels of categories, knots, centres.

    Attributes:
        text: the formula.
        spec: formulaic's specification of the features.
        has_intercept: whether there is an intercept.
    """

    text: str
    spec: Any
    has_intercept: bool

    def features(self, data: Any) -> Any:
        """The features of other rows, coded as those that were fitted."""
        frame = _frame(data)
        _refuse_unknown(self.text, self.spec, frame.columns)
        with _named_errors(self.text):
            found = self.spec.get_model_matrix(frame, context={}, na_action="raise")
        return _without_intercept(found)

    @property
    def groups(self) -> list[int]:
        """The term of the formula that each feature comes from."""
        found = enumerate(self.spec.term_slices.items())
        named = [(k, range(part.start, part.stop)) for k, (term, part) in found if term != "1"]
        return [k for k, places in named for _ in places]


class Matrices(NamedTuple):
    """Both sides of a formula: responses, features (a DataFrame), and how to make others."""

    y: np.ndarray
    features: Any
    formula: Formula
    label: str


class Variables(NamedTuple):
    """The names in a formula that are columns: the response, if it is one, and the others."""

    response: str
    features: frozenset[str]


def variables(text: str, columns: Sequence[str]) -> Variables:
    """The columns that a formula needs."""
    parsed = _parsed(text, columns)
    return Variables(_label(parsed), frozenset(map(str, parsed.required_variables)))


def matrices(text: str, data: Any) -> Matrices:
    """The responses and features that a formula makes of a DataFrame.

    Raises:
        ValueError: the formula cannot be read, names no column, or a value is missing.
    """
    frame = _frame(data)
    parsed = _parsed(text, [str(name) for name in frame.columns])
    label = _label(parsed)
    _refuse_unknown(text, parsed, frame.columns)
    with _named_errors(text):
        if label in frame.columns:  # text stays text: the labels of a logistic regression
            y = frame[label]
            if y.isna().any():
                raise ValueError(f"{int(y.isna().sum())} values of {label!r} are missing")
        else:
            y = parsed.lhs.get_model_matrix(frame, context={}, na_action="raise")
            y = _without_intercept(y)
            if y.shape[1] != 1:
                raise ValueError("the response on the left must be one column of numbers")
            y = y.iloc[:, 0]
        found = parsed.rhs.get_model_matrix(frame, context={}, na_action="raise")
    features = _without_intercept(found)
    if not features.shape[1]:
        raise ValueError(f"formula {text!r} has no feature on its right-hand side.")
    has_intercept = features.shape[1] < found.shape[1]
    return Matrices(np.asarray(y), features, Formula(text, found.model_spec, has_intercept), label)


def _parsed(text: str, columns: Sequence[str]) -> Any:
    """Both sides of a formula; `.` stands for all columns but the response."""
    if not isinstance(text, str):
        raise TypeError(f"formula must be a string such as 'y ~ a + b', got {type(text).__name__}.")
    with extra("formula", "a formula"):
        import formulaic
    with _named_errors(text):
        context = {"__formulaic_variables_available__": list(columns)}
        parsed = formulaic.Formula.from_spec(text, context=context)
        if len(list(getattr(parsed, "lhs", None) or [])) != 1:
            raise ValueError("one response is needed on the left, as in 'y ~ a + b'")
    return parsed


def _refuse_unknown(text: str, spec: Any, columns: Iterable[Any]) -> None:
    """Name the columns that a formula needs and the data do not have."""
    unknown = sorted(set(map(str, spec.required_variables)) - set(map(str, columns)))
    if unknown:
        raise ValueError(
            f"formula {text!r} needs columns that the data do not have: {listed(unknown)}."
        )


def _label(parsed: Any) -> str:
    return str(next(iter(parsed.lhs))).strip("`")


def _frame(data: Any) -> Any:
    import pandas as pd

    if not isinstance(data, pd.DataFrame):
        raise TypeError(
            f"data must be a pandas DataFrame with the columns of the formula, got "
            f"{type(data).__name__}."
        )
    return data


def _without_intercept(found: Any) -> Any:
    return found.loc[:, [name for name in found.columns if name != INTERCEPT]]


@contextmanager
def _named_errors(text: str) -> Iterator[None]:
    """Errors and warnings of formulaic in one sentence that names the formula."""
    from formulaic.errors import DataMismatchWarning, FormulaicError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # what formulaic does with pandas
            warnings.simplefilter("error", DataMismatchWarning)
            yield
    except DataMismatchWarning as error:
        levels = str(error).partition("dataset): ")[2].partition("}")[0]
        raise ValueError(
            f"formula {text!r}: the data have categories that the model was not fitted to: "
            f"{levels.strip('{')}."
        ) from None
    except (FormulaicError, ValueError) as error:
        said = str(error).split("\n")[0].rstrip(".")
        said = said.partition(": ")[2] or said if said.startswith("Error encountered") else said
        raise ValueError(f"formula {text!r} cannot be used: {said}.") from None
