"""Two predictions of a label: leaving out against fitting again, weights against a grid."""

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

from pipla.regression import SparseLogisticRegression
from pipla.regression._design import design_of
from pipla.regression._stacking import (
    Labels,
    average_left_out,
    best_share,
    reduced,
    ridge_mode,
    separable,
    stacked,
)


def problem(n=60, p=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p))
    y = (x[:, 0] - x[:, 1] + rng.logistic(size=n) > 0) * 1.0
    return x, y


def labels_of(x, y, weights=None, base=0.0, level_variance=100.0):
    weights = np.ones(len(y)) if weights is None else weights
    design = design_of(x, weights, centre=False, scale=False)
    return Labels(design.columns, y, weights, base, level_variance), design


def penalised(x, y, weights, variance, base=0.0):
    """The mode by a general optimiser."""
    design = np.column_stack([x, np.ones(len(x))])
    precision = np.append(np.full(x.shape[1], 1 / variance), 1 / 100)

    def value(b):
        z = base + design @ b
        gradient = design.T @ (weights * (expit(z) - y)) + precision * b
        return weights @ (np.logaddexp(0, z) - y * z) + 0.5 * precision @ b**2, gradient

    return optimize.minimize(value, np.zeros(len(precision)), jac=True, tol=1e-12).x


def test_the_mode_is_that_of_a_general_optimiser():
    x, y = problem()
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    labels, _ = labels_of(x, y, weights, base=0.3)
    b, level, _ = ridge_mode(labels, x, 2.0)
    np.testing.assert_allclose(np.append(b, level), penalised(x, y, weights, 2.0, 0.3), atol=1e-5)


def test_leaving_out_a_label_is_nearly_a_fit_without_it():
    x, y = problem()
    labels, _ = labels_of(x, y)
    left_out = ridge_mode(labels, x, 1.0)[2]
    for i in (0, 7, 23):
        rest = np.arange(len(y)) != i
        b = penalised(x[rest], y[rest], np.ones(len(y) - 1), 1.0)
        p = expit(x[i] @ b[:-1] + b[-1])
        assert abs(left_out[i] - (p if y[i] else 1 - p)) < 0.01
        inside = penalised(x, y, np.ones(len(y)), 1.0)
        p_inside = expit(x[i] @ inside[:-1] + inside[-1])
        # Of the difference that the label itself makes, more than nine tenths are seen.
        assert abs(left_out[i] - (p if y[i] else 1 - p)) < 0.1 * abs(p - p_inside)


def test_more_features_than_rows_are_reduced_without_loss():
    x, y = problem(n=12, p=30)
    labels, _ = labels_of(x, y)
    coordinates, back = reduced(x)
    assert coordinates.shape[1] <= 12
    b = back @ ridge_mode(labels, coordinates, 2.0)[0]
    np.testing.assert_allclose(b, penalised(x, y, np.ones(12), 2.0)[:-1], atol=1e-5)


def test_copies_and_weights_leave_out_the_same():
    x, y = problem(n=20)
    count = np.random.default_rng(2).integers(1, 4, 20)
    once, _ = labels_of(x, y, count.astype(float))
    copies, _ = labels_of(np.repeat(x, count, 0), np.repeat(y, count))
    first = np.cumsum(count) - count
    found = ridge_mode(copies, np.repeat(x, count, 0), 1.0)[2][first]
    np.testing.assert_allclose(ridge_mode(once, x, 1.0)[2], found, rtol=1e-8)
    draws, levels = np.random.default_rng(3).standard_normal((50, 4)), np.zeros(50)
    every = average_left_out(copies, np.repeat(x, count, 0), draws, levels)
    np.testing.assert_allclose(average_left_out(once, x, draws, levels), every[first], rtol=1e-8)


def test_an_average_without_a_label_is_the_harmonic_mean():
    x, y = problem(n=6)
    labels, _ = labels_of(x, y, base=0.2)
    draws, levels = np.random.default_rng(4).standard_normal((30, 4)), np.full(30, 0.1)
    p = expit(np.where(y > 0, 1, -1)[:, None] * (0.3 + x @ draws.T))
    np.testing.assert_allclose(
        average_left_out(labels, x, draws, levels), 1 / np.mean(1 / p, axis=1)
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_weight_of_the_average_maximises_the_score(seed):
    rng = np.random.default_rng(seed)
    first, second, weights = rng.uniform(0.05, 1, (3, 25))
    grid = np.linspace(0, 1, 2001)
    score = np.log(grid[:, None] * first + (1 - grid[:, None]) * second) @ weights
    assert abs(best_share(first, second, weights) - grid[np.argmax(score)]) < 1e-3
    assert best_share(second + 1, second, weights) == 1
    assert best_share(second, second + 1, weights) == 0


def test_a_plane_between_the_classes_is_found():
    x, y = problem()
    assert not separable(labels_of(x, y)[0], x, 1.0)
    normal = np.array([3.0, -1.0, 0.5, 2.0])
    planes = (x @ normal + 0.4 > 0) * 1.0
    assert separable(labels_of(x, planes)[0], x, 1.0)
    wrong = np.argmax(np.abs(x @ normal + 0.4))
    planes[wrong] = 1 - (x[wrong] @ normal + 0.4 > 0)
    assert not separable(labels_of(x, planes)[0], x, 1.0)
    few, y = problem(n=5, p=9)
    coordinates = reduced(few)[0]
    assert separable(labels_of(few, y)[0], coordinates, 1.0)


def test_too_much_work_no_variance_and_no_plane_mean_no_second_prediction():
    x, y = problem()
    labels, design = labels_of(x, y)
    assert stacked(labels, design, 1.0, np.zeros((2, 4)), np.zeros(2)) is None
    labels, design = labels_of(x, (x[:, 0] > 0.1) * 1.0)
    draws, levels = np.zeros((2, 4)), np.zeros(2)
    assert stacked(labels, design, 0.0, draws, levels) is None
    assert stacked(labels, design, 1.0, draws, levels) is not None
    x, y = problem(n=1001, p=1001)
    labels, design = labels_of(x, y)
    assert stacked(labels, design, 1.0, np.zeros((2, 1001)), levels) is None


def test_classes_that_keep_their_distance_are_predicted_with_confidence():
    """An average over all planes between them is more cautious than the limit here."""
    rng = np.random.default_rng(5)
    centre = 0.6 * rng.standard_normal(40)
    y = rng.integers(0, 2, 1120)
    x = rng.standard_normal((1120, 40)) + np.outer(2 * y - 1, centre)
    model = SparseLogisticRegression().fit(x[:120], y[:120])
    p = model.predict_proba(x[120:])[np.arange(1000), y[120:]]
    assert model.stacking_ < 0.2
    assert -np.mean(np.log(p)) < 0.02
    low, high = model.predict_interval(x[120:])
    assert np.all((low <= high) & (low >= 0) & (high <= 1))
