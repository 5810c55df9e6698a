"""Two predictions of a label: leaving out against fitting again, weights against a grid."""

import numpy as np
import pytest
import scipy.sparse
from scipy import optimize
from scipy.special import expit

from pipla.regression import SparseLogisticRegression
from pipla.regression._design import design_of
from pipla.regression._stacking import (
    FOLDS,
    Labels,
    best_share,
    left_out,
    parts_of,
    reduced,
    ridge_mode,
    separable,
    stacked,
)
from pipla.regression._state import Prior


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
    b, level = ridge_mode(labels, x, 2.0)
    np.testing.assert_allclose(np.append(b, level), penalised(x, y, weights, 2.0, 0.3), atol=1e-5)


def test_more_features_than_rows_are_reduced_without_loss():
    x, y = problem(n=12, p=30)
    labels, _ = labels_of(x, y)
    coordinates, back = reduced(x)
    assert coordinates.shape[1] <= 12
    b = back @ ridge_mode(labels, coordinates, 2.0)[0]
    np.testing.assert_allclose(b, penalised(x, y, np.ones(12), 2.0)[:-1], atol=1e-5)


NORMAL = Prior(np.array([0.0, 2.0]), np.array([0.0, 1.0]))


def test_left_out_labels_are_predicted_by_fits_without_them():
    """The mode of four fifths is that of a general optimiser, and the average is near."""
    x, y = problem()
    labels, _ = labels_of(x, y)
    average, mode = left_out(labels, x, 2.0, NORMAL, 0.0, np.ones(4))
    assert np.corrcoef(average, mode)[0, 1] > 0.9
    found, part = 0, parts_of(y)
    for fold in range(FOLDS):
        seen = part != fold
        b = penalised(x[seen], y[seen], np.ones(seen.sum()), 2.0)
        p = expit((2 * y - 1) * (x @ b[:-1] + b[-1]))
        found += int(np.sum(np.abs(mode - p)[~seen] < 1e-5))
    assert found == 60


def test_the_average_of_left_out_labels_is_not_better_than_that_of_new_ones():
    """Weights of the draws made it so, where a plane separates the classes.

    Twelve sets of labels without any relation to the features: a left-out label is a coin.
    """
    loss = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((20, 30)), np.arange(20) % 2 * 1.0
        average, _ = left_out(labels_of(x, y)[0], x, 2.0, NORMAL, 0.0, np.ones(30))
        loss.append(-np.mean(np.log(average)))
    assert np.mean(loss) > np.log(2)


def test_sparse_features_leave_out_the_same():
    x, y = problem(n=20)
    prior = Prior(np.array([0.0, 2.0]), np.array([0.5, 0.5]))
    given = scipy.sparse.csr_array(x)
    dense = left_out(labels_of(x, y)[0], x, 1.0, prior, -1.0, np.ones(4))
    sparse = left_out(labels_of(given, y)[0], given, 1.0, prior, -1.0, np.ones(4))
    np.testing.assert_allclose(dense, sparse, rtol=1e-6)


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
    given = (NORMAL, 0.0, np.ones(4))
    assert stacked(labels, design, 1.0, *given) is None
    labels, design = labels_of(x, (x[:, 0] > 0.1) * 1.0)
    assert stacked(labels, design, 0.0, *given) is None
    assert stacked(labels, design, 1.0, *given) is not None
    x, y = problem(n=1001, p=1001)
    labels, design = labels_of(x, y)
    assert stacked(labels, design, 1.0, NORMAL, 0.0, np.ones(1001)) is None


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
