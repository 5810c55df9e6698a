"""The estimators: scikit-learn's own checks, what they promise, and odd data."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pipla.diagnostics import ConvergenceWarning
from pipla.regression import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)
from pipla.regression._learned import sample

ALL = (SparseLinearRegression, SparseLogisticRegression, SparsePoissonRegression)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the counts vary:UserWarning")  # the responses of the checks
@pytest.mark.filterwarnings("ignore:there are only|y has only|y is|y holds:UserWarning")
@parametrize_with_checks([estimator() for estimator in ALL])
def test_scikit_learn(estimator, check):
    check(estimator)


def simulated(kind, n=120, p=30, seed=0):
    """Two effects among p features."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p))
    eta = 0.5 + 1.5 * x[:, 0] - x[:, 1]
    if kind is SparseLinearRegression:
        return x, eta + rng.standard_normal(n)
    if kind is SparsePoissonRegression:
        return x, rng.poisson(np.exp(eta))
    return x, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)


@pytest.fixture(scope="module", params=ALL, ids=lambda kind: kind.__name__)
def fitted(request):
    x, y = simulated(request.param)
    return request.param().fit(x, y), x, y


def test_effects_are_found_and_in_their_intervals(fitted):
    model, _, _ = fitted
    inclusion = model.inclusion_.ravel()
    assert np.all(inclusion[:2] > 0.95)
    assert np.mean(inclusion[2:]) < np.min(inclusion[:2]) - 0.3
    low, high = model.coef_interval_.reshape(2, -1)
    # The width is 3.3 posterior standard deviations: five around the truth.
    width = (high - low)[:2]
    assert np.all(np.abs((low + high)[:2] / 2 - np.array([1.5, -1.0])) < 1.5 * width)


def test_every_learned_number_is_in_its_interval(fitted):
    model, _, _ = fitted
    names = {"zeros", "scale"} | ({"noise"} if isinstance(model, SparseLinearRegression) else set())
    assert set(model.theta_) == set(model.theta_interval_) == names
    for name, (low, high) in model.theta_interval_.items():
        assert low <= model.theta_[name] <= high


def test_the_summary_names_features(fitted):
    model, _, _ = fitted
    text = model.summary(most=3)
    assert "x0" in text
    assert "intercept" in text
    assert "27 more of 30" in text
    assert max(map(len, text.splitlines())) <= 80


def test_equal_seeds_give_equal_answers_and_others_do_not(fitted):
    model, x, y = fitted
    again = type(model)().fit(x, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    other = type(model)(random_state=1).fit(x, y)
    assert not np.array_equal(model.coef_, other.coef_)
    # Means of the labels' effects vary by .075 between seeds: four standard errors of a difference.
    np.testing.assert_allclose(model.coef_, other.coef_, atol=0.4)


def test_pickled_models_predict_the_same(fitted):
    model, x, _ = fitted
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))


def test_sparse_features_give_the_answer_of_dense_ones(fitted):
    model, x, y = fitted
    sparse = type(model)().fit(scipy.sparse.csr_array(x), y)
    # Dense features are centred and sparse ones are not: the same posterior, other draws.
    np.testing.assert_allclose(sparse.coef_, model.coef_, atol=0.2)
    np.testing.assert_allclose(sparse.predict(scipy.sparse.csr_array(x)), sparse.predict(x))


def test_warm_starts_and_thresholds(fitted):
    model, x, y = fitted
    warm = type(model)(warm_start=True).fit(x, y)
    first = warm.coef_
    np.testing.assert_allclose(warm.fit(x, y).coef_, first, atol=0.2)
    assert not np.array_equal(warm.coef_, first)
    none = type(model)(threshold=0.0).fit(x, y)
    assert np.all(none.inclusion_ >= model.inclusion_ - 0.05)  # anything but 0 is more than large
    assert np.all(type(model)(threshold=1e3).fit(x, y).inclusion_ == 0)


def test_intervals_of_predictions_cover():
    x, y = simulated(SparseLinearRegression, n=1120)
    model = SparseLinearRegression().fit(x[:120], y[:120])
    low, high = model.predict_interval(x[120:])
    inside = np.mean((low < y[120:]) & (y[120:] < high))
    assert abs(inside - 0.9) < 0.06  # six standard errors, and the noise is learned from 120
    x, y = simulated(SparsePoissonRegression, n=620)
    model = SparsePoissonRegression().fit(x[:120], y[:120])
    low, high = model.predict_interval(x[120:])
    assert np.mean((low <= y[120:]) & (y[120:] <= high)) > 0.85
    x, y = simulated(SparseLogisticRegression)
    model = SparseLogisticRegression().fit(x, y)
    low, high = model.predict_interval(x)
    assert low.shape == (120, 2)
    assert np.all((low <= model.predict_proba(x)) & (model.predict_proba(x) <= high))
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        model.predict_interval(x, level=1.5)


def test_several_classes():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 10))
    z = np.stack([4 * x[:, 0], 4 * x[:, 1], 0 * x[:, 0]], axis=1)
    y = np.array(["a", "b", "c"])[np.argmax(z + rng.gumbel(size=z.shape), axis=1)]
    model = SparseLogisticRegression().fit(x[:200], y[:200])
    assert model.coef_.shape == (3, 10)
    assert model.coef_interval_.shape == (2, 3, 10)
    probabilities = model.predict_proba(x[200:])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert model.score(x[200:], y[200:]) > 0.5  # at random: a third
    assert "x0 (a)" in model.summary()
    assert "for each class, the logarithm of its probability" in model.summary()


def test_data_frames_pipelines_and_grid_search():
    pd = pytest.importorskip("pandas")
    x, y = simulated(SparseLinearRegression, n=60, p=5)
    frame = pd.DataFrame(x, columns=list("abcde"))
    assert "b  " in SparseLinearRegression().fit(frame, y).summary()
    pipeline = make_pipeline(StandardScaler(), SparseLinearRegression())
    search = GridSearchCV(pipeline, {"sparselinearregression__fit_intercept": [True, False]}, cv=2)
    assert search.fit(frame, y).best_params_["sparselinearregression__fit_intercept"]


def test_class_weights_move_probabilities():
    x, y = simulated(SparseLogisticRegression)
    plain = SparseLogisticRegression().fit(x, y)
    heavy = SparseLogisticRegression(class_weight={0: 5.0, 1: 1.0}).fit(x, y)
    assert heavy.predict_proba(x)[:, 1].mean() < plain.predict_proba(x)[:, 1].mean() - 0.02


def test_weights_of_labels_count_observations_several_times():
    x, y = simulated(SparseLogisticRegression)
    weights = np.random.default_rng(2).integers(0, 3, len(y))
    weighted = SparseLogisticRegression().fit(x, y, sample_weight=weights)
    repeated = SparseLogisticRegression().fit(np.repeat(x, weights, 0), np.repeat(y, weights))
    np.testing.assert_array_equal(weighted.predict_proba(x), repeated.predict_proba(x))
    plain = SparseLogisticRegression().fit(x, y)
    assert np.max(np.abs(plain.predict_proba(x) - repeated.predict_proba(x))) > 0.1


def test_callbacks_of_scikit_learn_are_called():
    pytest.importorskip("sklearn.callback")

    class Count:
        ends = 0

        def setup(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context, **rest):
            pass

        def on_fit_task_end(self, estimator, context, **rest):
            Count.ends += 1

        def teardown(self, estimator, context):
            Count.ends += 100

    x, y = simulated(SparseLinearRegression, n=40, p=3)
    SparseLinearRegression().set_callbacks(Count()).fit(x, y)
    assert Count.ends == 107  # six blocks, the fit, and the teardown


ODD = {
    "constant features": lambda x, y: (np.column_stack([x, np.ones(len(x))]), y),
    "only constant features": lambda x, y: (np.ones((len(x), 2)), y),
    "duplicated columns": lambda x, y: (np.column_stack([x, x]), y),
    "more features than rows": lambda x, y: (np.tile(x[:6], (1, 4)), y[:6]),
    "two rows": lambda x, y: (x[[np.argmin(y), np.argmax(y)]], y[[np.argmin(y), np.argmax(y)]]),
    "huge and tiny scales": lambda x, y: (x * np.array([1e120] + [1e-120] * 4), y),
    "far from 0": lambda x, y: (x + 1e6, y),
}


@pytest.mark.filterwarnings("ignore::pipla.diagnostics.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:the counts vary:UserWarning")  # without their features
@pytest.mark.filterwarnings("ignore:there are only:UserWarning")
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", ALL)
def test_odd_data_give_finite_answers(kind, odd):
    x, y = ODD[odd](*simulated(kind, n=30, p=5))
    model = kind().fit(x, y)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.predict(x).astype(float)))
    assert np.all(np.isfinite(model.coef_interval_))
    if "constant" in odd:
        assert model.coef_.ravel()[-1] == 0


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_answers_follow_the_unit_of_the_response(unit):
    x, y = simulated(SparseLinearRegression, n=30, p=5)
    model, other = SparseLinearRegression().fit(x, y), SparseLinearRegression().fit(x, unit * y)
    for name in ("coef_", "coef_interval_", "intercept_", "noise_"):
        given, found = getattr(model, name), getattr(other, name)
        np.testing.assert_allclose(found / unit, given, rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(other.inclusion_, model.inclusion_)
    intervals = other.predict_interval(x) / unit
    np.testing.assert_allclose(intervals, model.predict_interval(x), rtol=1e-4)


@pytest.mark.parametrize("kind", ALL)
def test_values_that_are_no_numbers_are_named(kind):
    x, y = simulated(kind, n=30, p=3)
    model = kind().fit(x, y)
    for bad in (np.nan, np.inf):
        spoilt = x.copy()
        spoilt[0, 0] = bad
        for call in (lambda spoilt=spoilt: kind().fit(spoilt, y), lambda: model.predict(spoilt)):
            with pytest.raises(ValueError, match="NaN" if np.isnan(bad) else "infinity"):
                call()
    with pytest.raises(ValueError, match="X has 2 features, but .* is expecting 3"):
        model.predict(x[:, :2])
    words = np.array(["low", "high"])[(y > np.mean(y)).astype(int)]
    if kind is SparseLogisticRegression:
        assert set(kind().fit(x, words).predict(x)) <= {"low", "high"}
    else:
        with pytest.raises(ValueError, match="y is text; SparseLogisticRegression is for classes"):
            kind().fit(x, words)


def test_chosen_features_keep_their_names():
    pd = pytest.importorskip("pandas")
    x, y = simulated(SparseLinearRegression, n=60, p=5)
    frame = pd.DataFrame(x, columns=list("abcde"))
    chosen = SelectFromModel(SparseLinearRegression(), threshold=0.5).set_output(transform="pandas")
    assert list(chosen.fit_transform(frame, y).columns) == ["a", "b"]


def test_separated_classes_give_finite_answers():
    x = np.linspace(-1, 1, 40)[:, None] * np.ones((1, 3))
    model = SparseLogisticRegression().fit(x, x[:, 0] > 0)
    assert np.all(np.isfinite(model.coef_interval_))
    assert model.score(x, x[:, 0] > 0) == 1


def test_a_perfect_fit_is_finite():
    x, _ = simulated(SparseLinearRegression)
    model = SparseLinearRegression().fit(x, 3 * x[:, 0] + 1)
    np.testing.assert_allclose(model.predict(x), 3 * x[:, 0] + 1, atol=1e-2)


def test_a_constant_response_has_nothing_to_explain():
    x, _ = simulated(SparseLinearRegression)
    with pytest.warns(UserWarning, match="y is 7 in all observations: there is nothing to explain"):
        constant = SparseLinearRegression().fit(x, np.full(len(x), 7.0))
    np.testing.assert_array_equal(constant.predict(x), 7.0)
    np.testing.assert_array_equal(constant.predict_interval(x), 7.0)
    assert constant.noise_ == 0
    assert not np.any(constant.inclusion_)
    assert "nothing to explain" in constant.summary()
    with pytest.raises(ValueError, match="y is 7 in all observations"):
        SparseLinearRegression("laplace").fit(x, np.full(len(x), 7.0))
    with pytest.warns(UserWarning, match="nothing to explain"):
        SparsePoissonRegression().fit(x, np.full(len(x), 7))


def test_learned_numbers_exist_where_nothing_is_found():
    """Labels at random: draws without any effect had a scale of up to 1e139."""
    rng = np.random.default_rng(0)
    model = SparseLogisticRegression().fit(rng.normal(size=(300, 10)), rng.integers(0, 5, 300))
    for name, (low, high) in model.theta_interval_.items():
        assert low <= model.theta_[name] <= high
    assert model.theta_interval_["scale"][1] < 100


def test_the_summary_has_one_level_and_says_its_units(fitted):
    model, _, _ = fitted
    narrow, wide = model.summary(level=0.5), model.summary()
    assert narrow.count("50 % interval") == wide.count("90 % interval") == 2
    low, high = model.coef_interval_.reshape(2, -1)[:, 0]
    assert f"[{low:.3g}, {high:.3g}]" in wide
    low, high = model.theta_interval_["scale"]
    assert f"[{low:.3g}, {high:.3g}]" in wide
    unit = {SparseLinearRegression: "units of y", SparseLogisticRegression: "log-odds"}
    told = unit.get(type(model), "logarithms of the rate")
    assert f"in {told} per standard deviation of the feature" in " ".join(wide.split())
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        model.summary(90)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prior": "lasso"}, "prior must be one of 'learned', 'laplace'"),
        ({"threshold": -1.0}, "threshold must not be negative"),
        ({"fit_intercept": 1}, "fit_intercept must be True or False"),
    ],
)
def test_bad_settings_are_named(given, said):
    with pytest.raises((ValueError, TypeError), match=said):
        SparseLinearRegression(**given).fit(np.eye(3), np.arange(3.0))


def test_bad_responses_are_named():
    x = np.random.default_rng(0).standard_normal((6, 2))
    with pytest.raises(ValueError, match="y must hold counts"):
        SparsePoissonRegression().fit(x, np.array([1, 2, -1, 0, 1, 2]))
    with pytest.raises(ValueError, match="only one class"):
        SparseLogisticRegression().fit(x, np.ones(6))
    with pytest.raises(ValueError, match="[Ss]ample weights must"):
        SparseLinearRegression().fit(x, np.arange(6.0), sample_weight=np.zeros(6))


@pytest.mark.slow
def test_a_laplace_prior_has_the_exact_scales_of_the_diabetes_data():
    """log c = -1.954 and log sigma = -.3523 by quadrature (issue 20): both scales within 1 %."""
    x, y = load_diabetes(return_X_y=True)
    model = SparseLinearRegression(prior="laplace").fit(x, (y - y.mean()) / y.std())
    assert abs(np.log(model.theta_["scale"]) + 1.954) < 0.01
    assert abs(np.log(model.theta_["noise"]) + 0.3523) < 0.01
    # The maximum is the same with a scale tied to sigma (Park and Casella, columns of norm 1).
    rate = model.theta_["noise"] / (model.theta_["scale"] * np.sqrt(len(y)))
    assert abs(rate - 0.236) < 0.01 * 0.236
    low, high = model.coef_interval_
    assert np.all((low < model.coef_) & (model.coef_ < high))


def test_a_weight_that_is_no_number_is_named():
    x, y = simulated(SparseLinearRegression, n=30, p=3)
    with pytest.raises(ValueError, match="sample_weight must be finite, got nan"):
        SparseLinearRegression().fit(x, y, sample_weight=float("nan"))


def test_a_large_offset_of_the_features_changes_nothing():
    """A date or a coordinate: the difference of two large squares would be rounding."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5))
    y = x[:, 0] + 0.5 * rng.standard_normal(200)
    near = SparseLinearRegression().fit(x, y)
    far = SparseLinearRegression().fit(x + 1e8, y)
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-4)
    np.testing.assert_allclose(far.predict(x + 1e8), near.predict(x), atol=1e-4)
    constant = np.full((200, 1), 1e8 / 3)
    assert SparseLinearRegression().fit(np.hstack([x, constant]), y).coef_[-1] == 0


@pytest.mark.parametrize("kind", [SparseLinearRegression, SparseLogisticRegression])
def test_equal_features_share_an_effect(kind):
    """Which of ten copies has it, nobody knows: each has a tenth of the draws or so."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((200, 3))
    y = 2 * z[:, 0] + 0.5 * rng.standard_normal(200)
    y = y > 0 if kind is SparseLogisticRegression else y
    model = kind().fit(np.repeat(z, 10, axis=1) * np.arange(1, 31), y)
    copies = model.inclusion_.ravel()[:10]
    assert copies.max() < 0.5  # of 600 draws with 1 to 3 of 10 included
    assert copies.sum() > 0.95
    assert model.findings_ == ()


def test_features_that_may_replace_each_other_share_their_effect():
    """Correlation .99999: where effects cannot change places, each chain holds on to one of them."""
    rng = np.random.default_rng(2)
    z = rng.standard_normal((200, 1))
    x = z + 0.003 * rng.standard_normal((200, 20))
    y = z[:, 0] + 0.3 * rng.standard_normal(200)
    model = SparseLinearRegression(threshold=0).fit(x, y)
    assert not model.findings_
    assert np.ptp(model.inclusion_) < 0.15


@pytest.mark.parametrize(
    ("found", "words"),
    [({"rhat": 2.0}, "most of all about the coefficient"), ({"theta_rhat": 2.0}, "the weights")],
)
def test_chains_that_disagree_are_warned_of(monkeypatch, found, words):
    def disagree(*arguments, **options):
        return sample(*arguments, **options)._replace(worst=0, **found)

    monkeypatch.setattr("pipla.regression._answers.sample", disagree)
    x = np.random.default_rng(2).standard_normal((50, 3))
    with pytest.warns(ConvergenceWarning, match=words):
        SparseLinearRegression().fit(x, x[:, 0])


def test_warnings_have_the_names_of_columns(monkeypatch):
    pd = pytest.importorskip("pandas")

    def disagree(*arguments, **options):
        return sample(*arguments, **options)._replace(worst=1, rhat=2.0)

    monkeypatch.setattr("pipla.regression._answers.sample", disagree)
    x = pd.DataFrame(np.random.default_rng(2).standard_normal((50, 2)), columns=["age", "size"])
    with pytest.warns(ConvergenceWarning, match="coefficient of feature 'size'"):
        SparseLinearRegression().fit(x, x["age"])


def test_counts_that_vary_too_much_for_poisson_are_warned_of():
    """Negative binomial counts; with 400 Poisson counts the test is at five standard deviations."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((400, 20))
    rates = np.exp(1 + 0.3 * x[:, 0])
    SparsePoissonRegression().fit(x, rng.poisson(rates))
    y = rng.poisson(rates * rng.gamma(0.5, 2, 400))
    with pytest.warns(UserWarning, match="times as much as a Poisson") as said:
        model = SparsePoissonRegression().fit(x, y)
    assert model.findings_
    assert np.sum(model.inclusion_[1:] > 0.8) > 2
    ratio = float(str(said[0].message).split()[3])
    milder = SparsePoissonRegression().fit(x, y, sample_weight=np.full(400, 1 / ratio))
    assert not np.any(milder.inclusion_[1:] > 0.8)


def test_no_variance_is_dropped_before_the_weights_are_drawn():
    """Data that choose the support of the prior, too, include weak effects too often.

    `benchmarks/regression/calibration.py --only drawn` measures it.
    """
    x, y = simulated(SparseLinearRegression)
    variances = SparseLinearRegression().fit(x, y).fit_.variances
    np.testing.assert_allclose(variances[2:] / variances[1:-1], 4.0)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_text_and_gaps_of_a_data_frame_are_named(kind):
    pd = pytest.importorskip("pandas")
    x, y = simulated(kind, n=20, p=3)
    frame = pd.DataFrame(x, columns=list("abc"))
    with pytest.raises(ValueError, match=r"^column 'city' of X is text; use from_formula"):
        kind().fit(frame.assign(city=["A", "B"] * 10), y)
    with pytest.raises(ValueError, match=r"^column 'city' of X is text"):
        kind().fit(frame.assign(city=pd.Categorical(["A", "B"] * 10)), y)
    gaps = frame.copy()
    gaps.iloc[0, :2] = np.nan
    with pytest.raises(ValueError, match=r"^columns 'a' and 'b' of X have missing values \(NaN\)"):
        kind().fit(gaps, y)


@pytest.mark.parametrize("kind", [SparseLinearRegression, SparsePoissonRegression])
def test_classes_are_for_the_logistic_regression(kind):
    x, _ = simulated(kind, n=20, p=3)
    for y in (["u", "v"] * 10, np.array(["u", "v"] * 10), np.array(["u", "v"] * 10, object)):
        with pytest.raises(ValueError, match="y is text; SparseLogisticRegression is for classes"):
            kind().fit(x, y)
