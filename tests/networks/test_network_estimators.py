"""The estimators: scikit-learn's own checks, and what they promise."""

import pickle

import numpy as np
import pytest
import sklearn.base
from sklearn.utils.estimator_checks import estimator_checks_generator

from pipla.networks import PruningWarning
from pipla.networks.estimators import SparseBayesianMLPClassifier, SparseBayesianMLPRegressor
from pipla.testing.algorithms import compilations

#: A few steps of two networks of one layer, which compile fast: what scikit-learn checks hardly
#: depends on the answer.
QUICK = {"hidden_layer_sizes": (), "num_particles": 2, "num_steps": 30}


def checks():
    """All checks of the classifier; of the regressor, which shares its code, those of its kind."""
    for estimator in (SparseBayesianMLPClassifier(**QUICK), SparseBayesianMLPRegressor(**QUICK)):
        for made, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            own = isinstance(made, SparseBayesianMLPClassifier) or "regress" in name
            if own:
                yield pytest.param(made, check, id=f"{type(made).__name__}-{name}")


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn(estimator, check):
    check(estimator)


def data():
    rng = np.random.default_rng(0)
    features = 100 + 3 * rng.standard_normal((60, 3))
    return features, features[:, 0] - features[:, 1]


@pytest.fixture(scope="module")
def regressor():
    return SparseBayesianMLPRegressor((3,), num_particles=2, num_steps=400).fit(*data())


def test_predictions_are_in_the_units_of_the_data(regressor):
    features, y = data()
    assert regressor.score(features, y) > 0.9
    low, high = regressor.predict_interval(features, 0.9)
    assert low.shape == (60,)
    assert np.all(low < high)
    assert np.all((low < regressor.predict(features)) & (regressor.predict(features) < high))
    assert 0 < regressor.noise_ < 0.5 * y.std()
    assert set(regressor.scales_) == {"layers/0", "layers/1"}
    assert regressor.n_features_in_ == 3


def test_a_second_network_of_the_same_shapes_compiles_nothing(regressor):
    """As in a cross-validation."""
    features, y = data()
    # Once more here: a worker that holds much memory drops its programs between two tests.
    sklearn.base.clone(regressor).fit(features, y)
    with compilations() as compiled:
        sklearn.base.clone(regressor).fit(features[::-1], y)
    assert not compiled


def test_outlying_features_are_clipped(regressor):
    features, _ = data()
    far = features.copy()
    far[0, 0] = 1e9
    near = features.copy()
    near[0, 0] = features[:, 0].mean() + 5 * features[:, 0].std()
    np.testing.assert_allclose(regressor.predict(far), regressor.predict(near))


def test_a_pruned_estimator_is_an_estimator(regressor, tmp_path):
    features, y = data()
    before = regressor.predict(features)
    np.testing.assert_allclose(regressor.prune(0.0).predict(features), before)
    with pytest.warns(PruningWarning, match="of what the network explains"):  # all three count
        found = regressor.prune(units=0.5)
    assert isinstance(found, SparseBayesianMLPRegressor)
    assert found.pruned_.occupancy < 1
    assert "Pruned: " in found.summary()
    assert "of what the network explains" in str(found.findings_[-1])
    np.testing.assert_array_equal(regressor.predict(features), before)
    again = type(found).load(found.save(tmp_path / "pruned"))
    np.testing.assert_array_equal(again.predict(features), found.predict(features))
    assert repr(again.pruned_) == repr(found.pruned_)
    assert again.findings_ == found.findings_
    assert np.isfinite(again.score(features, y))


@pytest.mark.filterwarnings("ignore::pipla.networks.PruningWarning")
@pytest.mark.parametrize("average", ["after", "particle", "before"])
def test_pruning_twice_keeps_what_is_pruned(regressor, average):
    features, y = data()
    once = regressor.prune(0.5, average=average)
    twice = once.prune(0.25, X=features, y=y)
    assert twice.pruned_.pruned == once.pruned_.pruned == pytest.approx(0.5, abs=0.05)
    np.testing.assert_allclose(twice.predict(features), once.predict(features))
    drawn, before = (model.to_arviz()["posterior"].data_vars for model in (twice, regressor))
    assert set(drawn) == set(before)


def test_a_pruned_classifier_takes_the_labels_of_the_data():
    features, y = data()
    labels = np.where(y > 0, "yes", "no")
    model = SparseBayesianMLPClassifier((3,), num_particles=2, num_steps=400).fit(features, labels)
    found = model.prune(0.3, X=features[:40], y=labels[:40])
    assert found.score(features, labels) > 0.8
    assert found.predict_proba(features).shape == (60, 2)
    with pytest.raises(ValueError, match="y must hold labels of fit, .*'perhaps'"):
        model.prune(0.3, X=features, y=np.full(60, "perhaps"))
    with pytest.raises(ValueError, match="X and y must be given together"):
        model.prune(0.3, X=features)


def test_pickled_estimators_predict_the_same(regressor):
    features, _ = data()
    again = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(again.predict(features), regressor.predict(features))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"hidden_layer_sizes": (0,)}, ValueError, "hidden_layer_sizes must be at least 1"),
        ({"activation": "step"}, ValueError, "activation must be one of"),
        ({"prior": "spike"}, ValueError, "prior must be one of"),
    ],
)
def test_what_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        SparseBayesianMLPClassifier(**options).fit(np.eye(4), [0, 1, 0, 1])
