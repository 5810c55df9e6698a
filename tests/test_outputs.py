"""Outputs that every estimator has: summary, figure, page, table, draws, files."""

import io
import re
import zipfile

import numpy as np
import pytest

import pipla
from pipla.completion import Completion, complete
from pipla.completion.estimators import LowRankCompletion
from pipla.engine.archive import DamagedResultError
from pipla.networks.estimators import SparseBayesianMLPClassifier, SparseBayesianMLPRegressor
from pipla.regression import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)

pandas = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
NAMES = ["age", "dose", "noise"]
X = pandas.DataFrame(RNG.standard_normal((60, 3)), columns=NAMES)
MEAN = 2 * X["dose"].to_numpy()
Y = 3 + MEAN + 0.5 * RNG.standard_normal(60)
LABELS = np.where(MEAN + RNG.logistic(size=60) > 0, "yes", "no")
THREE = np.where(X["age"] > 0.7, "maybe", LABELS)
COUNTS = RNG.poisson(np.exp(0.5 * MEAN))
QUICK = {"num_particles": 2, "num_steps": 30}
TABLE = RNG.standard_normal((12, 1)) @ RNG.standard_normal((1, 3))
GAPS = pandas.DataFrame(np.where(RNG.random(TABLE.shape) < 0.7, TABLE, np.nan), columns=NAMES)

MADE = {
    "linear": lambda: SparseLinearRegression().fit(X, Y),
    "laplace": lambda: SparseLinearRegression("laplace").fit(X, Y),
    "two classes": lambda: SparseLogisticRegression().fit(X, LABELS),
    "three classes": lambda: SparseLogisticRegression().fit(X, THREE),
    "counts": lambda: SparsePoissonRegression().fit(X, COUNTS),
    "network": lambda: SparseBayesianMLPRegressor((3,), **QUICK).fit(X, Y),
    "network of classes": lambda: SparseBayesianMLPClassifier((3,), **QUICK).fit(X, LABELS),
    "completion": lambda: LowRankCompletion(max_rank=1, num_steps=30).fit(GAPS),
}
RESPONSES = {
    "two classes": LABELS,
    "three classes": THREE,
    "counts": COUNTS,
    "network of classes": LABELS,
}


#: By `pipla.fit`, which compiles.
SLOW = {"laplace"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MADE],
)
def answer(request):
    return request.param, MADE[request.param]()


def predicted(name, model):
    return model.transform(GAPS) if name == "completion" else model.predict(X)


def test_a_summary_at_any_level(answer):
    _, model = answer
    wide, narrow = model.summary(level=0.9), model.summary(level=0.5)
    assert "90 % interval" in wide
    assert "50 % interval" in narrow
    assert "dose" in wide  # by its name in the data
    assert "dosis" in model.summary(feature_names=["alter", "dosis", "rest"])
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        model.summary(90)


def test_a_page_holds_warnings_figures_and_tables(answer, tmp_path):
    name, model = answer
    target = None if name == "completion" else RESPONSES.get(name, Y)
    given = (None, None) if target is None else (X, target)
    page = model.report(tmp_path / "new" / "page.html", *given, level=0.8).read_text()
    assert "80 % interval" in page
    assert "dose" in page
    assert len(re.findall("<img ", page)) >= 2
    if target is not None:
        with pytest.raises(ValueError, match="X and y must be given together"):
            model.report(tmp_path / "page.html", X)
    for sentence in map(str, getattr(model, "findings_", ())):
        assert sentence[:30] in page or "&" in sentence[:30] or "'" in sentence[:30]


def test_a_figure_is_one_of_matplotlib(answer):
    _, model = answer
    buffer = io.BytesIO()
    model.plot(most=2).savefig(buffer)
    assert buffer.tell() > 1000


def test_a_table_for_pandas_has_a_row_per_number(answer):
    name, model = answer
    found = model.to_pandas(level=0.8)
    assert set(found["level"]) == {0.8}
    assert np.isfinite(found["estimate"]).all()
    if hasattr(model, "coef_"):
        rows = found[found["part"] == "coefficient"]
        np.testing.assert_array_equal(rows["estimate"], model.coef_.ravel())
        np.testing.assert_array_equal(rows["probability"], model.inclusion_.ravel())
    if name == "network":
        assert found.loc["noise", "estimate"] == pytest.approx(model.noise_)


def test_draws_for_arviz(answer):
    pytest.importorskip("arviz_base")
    name, model = answer
    posterior = model.to_arviz()["posterior"]
    if hasattr(model, "coef_"):
        assert list(posterior["coef"].coords["feature"].values) == NAMES
        mean = posterior["coef"].mean(["chain", "draw"]).to_numpy()
        spread = posterior["coef"].std(["chain", "draw"]).to_numpy()
        assert np.all(np.abs(mean - model.coef_.reshape(mean.shape)) <= 0.5 * spread + 1e-6)
    elif name == "completion":
        mean = posterior["matrix"].mean(["chain", "draw"]).to_numpy()
        np.testing.assert_allclose(mean, model.completion_.mean(), atol=1e-5)
    else:
        assert posterior["layers.0"].shape[2:] == (3, 3)


def test_what_is_saved_is_what_is_loaded(answer, tmp_path):
    name, model = answer
    again = type(model).load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(predicted(name, again), predicted(name, model))
    assert again.summary() == model.summary()
    assert again.get_params() == model.get_params()
    pandas.testing.assert_frame_equal(again.to_pandas(), model.to_pandas())
    other = LowRankCompletion if name != "completion" else SparseLinearRegression
    with pytest.raises(TypeError, match=f"holds a {type(model).__name__}, not a"):
        other.load(tmp_path / "model")
    content = zipfile.ZipFile(tmp_path / "model" / "result.pipla").namelist()
    assert all(each.endswith((".json", ".npy")) for each in content)


def test_draws_of_new_responses(answer):
    name, model = answer
    if name == "completion":
        found = model.predict_draws(num_draws=7)
        assert found.shape == (7, 12, 3)
        clean = model.predict_draws(rows=[0, 1], columns=[2, 2], noisy=False)
        np.testing.assert_allclose(clean.mean(axis=0), model.predict_entries([0, 1], [2, 2]), 1e-4)
        return
    found = model.predict_draws(X, 400, random_state=1)
    assert found.shape == (400, 60)
    np.testing.assert_array_equal(found, model.predict_draws(X, 400, random_state=1))
    assert not np.array_equal(found, model.predict_draws(X, 400, random_state=2))
    if hasattr(model, "classes_"):
        chances = model.predict_proba(X)
        for place, label in enumerate(model.classes_):
            # Means over 400 draws of 60 rows: six standard errors, and draws of coefficients.
            assert abs(np.mean(found == label) - chances[:, place].mean()) < 0.03
        return
    error = np.abs(found.mean(axis=0) - model.predict(X))
    assert np.all(error < 6 * found.std(axis=0) / 20 + 1e-3)
    low, high = model.predict_interval(X, 0.8)
    held = np.mean((found >= low) & (found <= high))
    assert 0.77 < held < (0.95 if name == "counts" else 0.83)


def test_intervals_in_the_manner_of_statsmodels():
    model = MADE["linear"]()
    found = model.conf_int(0.9)
    assert list(found.columns) == ["lower", "upper"]
    assert list(found.index) == ["intercept", *NAMES]
    np.testing.assert_array_equal(found.loc[NAMES].to_numpy().T, model.coef_interval_)
    assert found.loc["dose", "lower"] < 2 < found.loc["dose", "upper"]
    wider = model.conf_int(0.99)
    assert np.all(wider["upper"] >= found["upper"])
    np.testing.assert_allclose(model.conf_int(alpha=0.01), wider)
    np.testing.assert_array_equal(model.conf_int(), found)
    says = r"conf_int\(level=0\.95\) or conf_int\(alpha=0\.05\)"
    with pytest.raises(ValueError, match=says):
        model.conf_int(0.05)
    with pytest.raises(ValueError, match="level or alpha = 1 - level, not both"):
        model.conf_int(0.9, alpha=0.1)
    several = MADE["three classes"]().conf_int()
    assert "dose (maybe)" in several.index


def test_a_completion_itself_comes_back(tmp_path):
    for prior in ("factors", "nuclear"):
        found = complete(GAPS.to_numpy(), prior=prior, num_steps=30)
        again = Completion.load(found.save(tmp_path / prior))
        assert repr(again) == repr(found)
        np.testing.assert_array_equal(again.mean(), found.mean())
        assert again.result.num_steps == found.result.num_steps


def test_what_cannot_be_saved_is_named(tmp_path):
    model = SparseLinearRegression(random_state=np.random.RandomState(0)).fit(X, Y)
    with pytest.raises(TypeError, match="random_state is a RandomState, which a file cannot hold"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_file_cannot_name_another_class(tmp_path):
    model = MADE["linear"]()
    model.save(tmp_path / "model")
    saved = pipla.load(tmp_path / "model")
    state = saved.state | {"_answer_": {"fields": {"kind": "Popen", "values": {}}}}
    pipla.engine.storage.save(type(saved)(saved.name, saved.parameters, state), tmp_path / "bad")
    with pytest.raises(DamagedResultError, match="Popen"):
        SparseLinearRegression.load(tmp_path / "bad")


def test_a_loaded_network_is_pruned_by_observations_that_are_given(tmp_path):
    model = MADE["network"]()
    again = type(model).load(model.save(tmp_path / "model"))
    with pytest.raises(ValueError, match="X and y of an estimator"):
        again.prune(0.2)
    found, same = again.prune(0.2, X=X, y=Y), model.prune(0.2)
    assert found.pruned_.lost == pytest.approx(same.pruned_.lost)
    np.testing.assert_array_equal(found.predict(X), same.predict(X))
    assert isinstance(again.network_.summary(), str)
