from sklearn.utils.estimator_checks import parametrize_with_checks

from pipla.regression import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)


@parametrize_with_checks(
    [SparseLinearRegression(), SparseLogisticRegression(), SparsePoissonRegression()]
)
def test_scikit_learn(estimator, check):
    check(estimator)
