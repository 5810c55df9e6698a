"""What a problem of the zoo is, and where its answer is stored."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla.models.model import Model

#: The levels of `Answer.x_quantiles`.
LEVELS = (0.05, 0.5, 0.95)

#: Written by `lab/zoo_answers.py`.
ANSWERS = Path(__file__).with_name("answers.json")


class Answer(NamedTuple):
    """What is known about a problem, as float64 NumPy arrays.

    An error is one standard deviation of what the method itself leaves uncertain: Monte-Carlo
    error between independent chains, or the change when a quadrature is refined.

    Attributes:
        theta: the maximiser of the marginal likelihood; a pytree like `ZooProblem.theta`. An
            infinite part has no maximum: the marginal likelihood rises all the way there.
        theta_error: the error of `theta`.
        theta_stderr: the standard error of the maximiser as an estimator, the root of the diagonal
            of the inverse observed information; NaN where there is none.
        x_mean: the posterior mean at `theta`; a pytree like `ZooProblem.x`.
        x_mean_error: its error.
        x_sd: the posterior standard deviation at `theta`.
        x_sd_error: its error.
        x_quantiles: the 5 %, 50 % and 95 % quantiles at `theta`, along a new leading axis.
        x_quantiles_error: their error.
        how: how the answer was obtained.
        identifiable: whether every part of theta has a maximum.
    """

    theta: PyTree
    theta_error: PyTree
    theta_stderr: PyTree
    x_mean: PyTree
    x_mean_error: PyTree
    x_sd: PyTree
    x_sd_error: PyTree
    x_quantiles: PyTree
    x_quantiles_error: PyTree
    how: str
    identifiable: bool


class Case(NamedTuple):
    """A problem without its name and answer; the attributes are those of `ZooProblem`."""

    about: str
    model: Model
    theta: PyTree
    x: PyTree
    data: Mapping[str, np.ndarray]


class ZooProblem(NamedTuple):
    """A model with data, a start and the answer.

    Attributes:
        name: the name in `pipla_lab.zoo.names()`.
        about: what the problem is, in one sentence.
        model: the model with its data.
        theta: where theta starts.
        x: where one particle starts.
        data: the numbers that the model was made from, in float64, for other programs.
        answer: the maximiser and the posterior there.
    """

    name: str
    about: str
    model: Model
    theta: PyTree
    x: PyTree
    data: Mapping[str, np.ndarray]
    answer: Answer


class Kind:
    """The problems of one kind: functions without arguments, entered by the decorator `named`."""

    def __init__(self) -> None:
        self.problems: dict[str, Callable[[], Case]] = {}

    def named(self, name: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
        """Enter the function below under this name."""

        def enter(make: Callable[[], Case]) -> Callable[[], Case]:
            self.problems[name] = make
            return make

        return enter


def number(value: float) -> jax.Array:
    """A start of theta: one number in JAX's default float type."""
    return jnp.asarray(value, jnp.result_type(float))


def zeros(*shape: int) -> jax.Array:
    """A start of x."""
    return jnp.zeros(shape, jnp.result_type(float))


def flat(tree: PyTree) -> np.ndarray:
    """The numbers of a pytree side by side, in float64."""
    leaves = [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves)


def fingerprint(data: Mapping[str, np.ndarray]) -> float:
    """A number that changes with the data."""
    total = 0.0
    for values in data.values():
        places = np.arange(1, values.size + 1)
        total += float(np.sum(np.cos(places) * values.ravel()))
    return total


def answer_to(name: str, case: Case) -> Answer:
    """The stored answer, in the structure and shapes of theta and x."""
    found = stored()[name]

    def arrays(key: str, like: PyTree, *axes: int) -> PyTree:
        def array(leaf: Any, values: Any) -> np.ndarray:
            # An error is one number where it is the same everywhere.
            return np.broadcast_to(np.asarray(values, np.float64), (*axes, *np.shape(leaf))).copy()

        return jax.tree.map(array, like, found[key])

    return Answer(
        theta=arrays("theta", case.theta),
        theta_error=arrays("theta_error", case.theta),
        theta_stderr=arrays("theta_stderr", case.theta),
        x_mean=arrays("x_mean", case.x),
        x_mean_error=arrays("x_mean_error", case.x),
        x_sd=arrays("x_sd", case.x),
        x_sd_error=arrays("x_sd_error", case.x),
        x_quantiles=arrays("x_quantiles", case.x, len(LEVELS)),
        x_quantiles_error=arrays("x_quantiles_error", case.x, len(LEVELS)),
        how=found["how"],
        identifiable=found["identifiable"],
    )


@functools.cache
def stored() -> dict[str, Any]:
    """All answers as they are in the file, by name."""
    return json.loads(ANSWERS.read_text(encoding="utf-8"))
