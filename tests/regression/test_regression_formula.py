"""Formulas: features, prediction of new rows, and errors in one sentence."""

import pickle
import sys

import numpy as np
import pytest

from pipla.regression import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)
from pipla.regression._formula import matrices

pd = pytest.importorskip("pandas")
pytest.importorskip("formulaic")


def frame(rows=120):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "age": rng.uniform(20, 60, rows),
            "sex": rng.choice(["f", "m"], rows),
            "city": rng.choice(["Rome", "Paris", "Wien"], rows),
            "my size": rng.standard_normal(rows),
        }
    )
    data["y"] = 0.1 * data.age * (data.sex == "m") + 2 * (data.city == "Rome")
    data["y"] += 0.2 * rng.standard_normal(rows)
    data["label"] = np.where(data.y > data.y.median(), "high", "low")
    data["count"] = rng.poisson(np.exp(0.5 * data["my size"]))
    return data


def test_a_linear_regression_by_formula_predicts_new_frames():
    data = frame()
    model = SparseLinearRegression.from_formula("y ~ age * sex + C(city)", data[:100])
    assert model.feature_names_in_.tolist() == [
        *("age", "sex[T.m]", "C(city)[T.Rome]", "C(city)[T.Wien]", "age:sex[T.m]")
    ]
    assert abs(model.coef_[-1] - 0.1) < 0.02
    new = data[100:]
    assert model.score(new, new.y) > 0.97
    # One row has one city; its features are those of all cities.
    np.testing.assert_allclose(model.predict(new[:1]), model.predict(new)[:1])
    low, high = pickle.loads(pickle.dumps(model)).predict_interval(new)
    assert np.mean((low < new.y) & (new.y < high)) > 0.7
    with pytest.raises(ValueError, match="not fitted to: 'Oslo'"):
        model.predict(new.assign(city="Oslo"))
    with pytest.raises(ValueError, match="needs columns that the data do not have: 'city'"):
        model.predict(new.drop(columns="city"))
    with pytest.raises(TypeError, match="data must be a pandas DataFrame"):
        model.predict(new.to_numpy())
    # A fit to plain features forgets the formula.
    model.fit(data[["age"]], data.y)
    assert model.predict(data[["age"]]).shape == (120,)


def test_labels_and_counts_by_formula():
    data = frame()
    model = SparseLogisticRegression.from_formula("label ~ age:sex + city", data, random_state=1)
    assert model.classes_.tolist() == ["high", "low"]
    assert model.random_state == 1
    assert model.predict_proba(data).shape == (120, 2)
    model = SparsePoissonRegression.from_formula("count ~ `my size` - 1", data)
    assert model.intercept_ == 0
    assert abs(model.coef_[0] - 0.5) < 0.3


def test_both_sides_of_a_formula():
    data = frame()
    made = matrices("np.log(age) ~ . - y", data[["age", "y", "sex"]])
    assert made.label == "np.log(age)"
    np.testing.assert_allclose(made.y, np.log(data.age))
    made = matrices("y ~ .", data[["age", "y", "sex"]])
    assert list(made.features.columns) == ["age", "sex[T.m]"]
    assert made.formula.groups == [1, 2]
    made = matrices("y ~ city * age", data)
    assert made.formula.groups == [1, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("y ~ np.log(nothing)", "needs columns that the data do not have: 'nothing'"),
        ("y ~ age +", "cannot be used"),
        ("~ age", "one response is needed on the left"),
        ("y + age ~ sex", "one response is needed on the left"),
        ("y ~ 1", "no feature on its right-hand side"),
        ("y ~ gap", "'gap' has 1 missing value|`gap` contains null values"),
        ("gap ~ age", "1 values of 'gap' are missing"),
    ],
)
def test_formulas_that_cannot_be_used_are_named(formula, said):
    data = frame().assign(gap=[np.nan] + [1.5] * 119)
    with pytest.raises(ValueError, match=said) as caught:
        SparseLinearRegression.from_formula(formula, data)
    assert repr(formula) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_formula_is_a_string_and_data_are_a_frame():
    with pytest.raises(TypeError, match="formula must be a string"):
        SparseLinearRegression.from_formula(3, frame())
    with pytest.raises(TypeError, match="data must be a pandas DataFrame"):
        SparseLinearRegression.from_formula("y ~ age", {"y": [1, 2], "age": [3, 4]})


def test_without_formulaic_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic", None)
    with pytest.raises(ImportError, match=r"pip install 'pipla\[formula\]'"):
        SparseLinearRegression.from_formula("y ~ age", frame())
