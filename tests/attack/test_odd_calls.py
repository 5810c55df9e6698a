"""A small share of the odd calls, and the generator itself; `make attack` makes all of them."""

import functools
import warnings

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skimage")
pytest.importorskip("pipla_lab")

import odd_calls
import odd_targets

from pipla.completion.estimators import LowRankCompletion
from pipla.networks.estimators import SparseBayesianMLPClassifier
from pipla.regression import SparseLogisticRegression

pytestmark = pytest.mark.slow

#: Rows of the table whose calls take milliseconds and whose checks are finished.
CHEAP = r"^prox\.|^term\.(value|on|translate|time_unit|__rmul__|coupled_sizes)|^problems\.g"


def test_a_share_of_the_odd_calls_is_sound():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        verdicts = [call() for call, _ in odd_calls.perform(range(300), seed=1, only=CHEAP)]
    assert [v for v in verdicts if v.outcome in ("raw", "hang")] == []
    assert sum(v.outcome == "refused" for v in verdicts) > 100


def test_every_public_callable_has_a_valid_call():
    """The generator finds every name; a new one is called even before it has a row."""
    names = {target.name for target in odd_targets.targets()}
    found = odd_targets.public_names()
    without_arguments = {name for name in found if not odd_targets._required(found[name])}
    assert set(found) - names <= without_arguments
    assert {"pipla.run", "prox.L1", "operators.Dense", "imaging.psnr"} <= names


def test_valid_calls_are_valid():
    """An odd argument is no test of the checks where the call fails for another reason."""
    made = ("fit", "Sparse", "Multinomial", "complete", "SparseLogisticRegression", "IRPL")
    with jax.numpy_dtype_promotion("standard"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for target in odd_targets.targets():
            if target.name.rpartition(".")[2] in made:
                target.call(**target.valid)


def test_calls_depend_on_seed_and_number_only():
    rows, odd = odd_targets.targets(), odd_calls._odd_values()
    first, again = (odd_calls._draw(7, 3, rows, odd)[:2] for _ in range(2))
    assert first[0].name == again[0].name
    assert first[1] == again[1]


def _refuse():
    raise ValueError("a sentence that is not of the library.")


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (lambda x: x, "returned"),
        (lambda x: _refuse(), "raw"),
        (lambda x: jax.numpy.zeros(-1), "raw"),
        (odd_targets.prox.L1, "refused"),
    ],
)
def test_only_errors_of_the_library_itself_are_sound(call, outcome):
    def named(x):
        return call(x)

    target = odd_targets.Target("t", named, {"x": 1.0})
    run = functools.partial(odd_calls._perform, 0, target, {"x": "'a'"}, {"x": "a"})
    assert run().outcome == outcome


@pytest.mark.parametrize(
    "estimator",
    [
        SparseLogisticRegression,
        LowRankCompletion,
        SparseBayesianMLPClassifier,
    ],
)
def test_a_view_larger_than_the_memory_is_refused_at_once(estimator):
    """scikit-learn would look at each of its 4 10^12 numbers first."""
    huge = np.broadcast_to(np.float64(1.0), (2**21, 2**21))
    with pytest.raises(ValueError, match=r"X is larger than the memory.*\(2097152, 2097152\)"):
        estimator().fit(huge, np.zeros(3))
