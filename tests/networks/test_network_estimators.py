"""The estimators: scikit-learn's own checks, and what they promise."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pipla.networks.estimators import SparseBayesianMLPClassifier, SparseBayesianMLPRegressor

#: Two steps of two small networks: what scikit-learn checks does not depend on the answer.
QUICK = {"hidden_layer_sizes": (3,), "num_particles": 2, "num_steps": 30}


@pytest.mark.slow
@parametrize_with_checks(
    [SparseBayesianMLPClassifier(**QUICK), SparseBayesianMLPRegressor(**QUICK)]
)
def test_scikit_learn(estimator, check):
    check(estimator)
