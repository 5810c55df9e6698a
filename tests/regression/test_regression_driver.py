"""Sparse regressions in the driver: hooks, Ctrl-C, status, files, and resuming bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import pipla
from pipla.diagnostics import ConvergenceWarning
from pipla.engine import storage
from pipla.engine.archive import DamagedResultError
from pipla.engine.result import OtherModelWarning, Status
from pipla.regression import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)
from pipla.regression._chains import GlmChain

#: The sweeps after each block of learning, after the first half of the first round, and its end.
BLOCKS = [30, 60, 100, 160, 280]
HALF, ONE_ROUND, TWO_ROUNDS = 430, 580, 1180


def features(n=60, p=20, correlation=0.95):
    rng = np.random.default_rng(0)
    common, own = rng.standard_normal((n, 1)), rng.standard_normal((n, p))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own


def problem(kind):
    """An estimator and data; each with a chain, or a form of the features, of its own."""
    rng, x = np.random.default_rng(1), features()
    effect = 2 * x[:, 0] - x[:, 1] + x[:, 2]
    if kind == "gram":
        return SparseLinearRegression, x, effect + rng.standard_normal(60)
    if kind == "residual":
        x = features(40, 60)
        return SparseLinearRegression, x, 2 * x[:, 0] + rng.standard_normal(40)
    if kind == "sparse":
        x = scipy.sparse.random(80, 60, 0.2, random_state=0, format="csc")
        return SparseLinearRegression, x, 3 * x[:, [0]].toarray()[:, 0] + rng.standard_normal(80)
    if kind == "labels":
        return SparseLogisticRegression, x, effect + rng.logistic(size=60) > 0
    if kind == "counts":
        return SparsePoissonRegression, x, rng.poisson(np.exp(0.3 * effect))
    scores = np.stack([effect, -effect, 0 * effect], axis=1) + rng.gumbel(size=(60, 3))
    return SparseLogisticRegression, x, scores.argmax(axis=1)


KINDS = ["gram", "residual", "sparse", "labels", "counts", "classes"]


class At(pipla.hooks.Hook):
    """Does something after a certain number of sweeps."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def next_step(self, step):
        return self.step if step < self.step else None

    def __call__(self, view):
        return self.action() if view.step == self.step else None


def ctrl_c():
    raise KeyboardInterrupt


def stop_at(step):
    return [At(step, lambda: True)]


def interrupt_at(step):
    return [At(step, ctrl_c)]


def everything(model):
    """All numbers of an answer."""
    found = model.fit_
    answer = model._answer_
    return [
        *(model.coef_, model.intercept_, answer.draws, answer.levels, answer.slab),
        *(found.theta, found.trace, found.variances, found.weights),
        *(found.noise, found.rhat, found.error, found.theta_rhat, found.acceptance, found.sweeps),
    ]


def assert_same(one, other):
    for a, b in zip(everything(one), everything(other), strict=True):
        np.testing.assert_array_equal(a, b)


# Hooks. #


def test_callbacks_see_the_sweeps():
    kind, x, y = problem("gram")
    views = []
    model = kind(callbacks=[views.append]).fit(x, y)
    steps = [view.step for view in views]
    assert {*BLOCKS, HALF, ONE_ROUND} <= set(steps)
    assert [view.step for view in views if view.at_end][:6] == [*BLOCKS, ONE_ROUND]
    assert views[0].num_steps == ONE_ROUND
    assert views[-1].num_steps == model.n_iter_ == steps[-1]
    last = views[-1]
    assert last.burn_in == BLOCKS[-1]
    assert last.particles.shape == (2, 20)
    assert set(last.theta) == set(last.theta_trace) == set(model.theta_)
    assert all(len(view.theta_trace["noise"]) == view.step for view in views)
    drawn = {name: trace[-last.step // 4 :] for name, trace in last.theta_trace.items()}
    for name, (low, high) in model.theta_interval_.items():  # in the same units
        assert low <= np.median(drawn[name]) <= high
    assert_same(model, kind().fit(x, y))


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_are_called_at_their_sweeps_and_change_nothing(kind, tmp_path):
    kind, x, y = problem(kind)
    look = pipla.hooks.Evaluate(lambda theta, b: (float(theta["zeros"]), b.shape), every=7)
    log = pipla.hooks.Log(tmp_path / "log.jsonl", every=100)
    model = kind(callbacks=[look, log]).fit(x, y)
    assert [step for step, _ in look.history][:-1] == list(range(7, model.n_iter_, 7))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines[:3]] == [100, 200, 300]
    assert {f"theta['{name}']" for name in model.theta_} <= set(lines[0])
    assert_same(model, kind().fit(x, y))


def test_a_progress_bar(capsys):
    kind, x, y = problem("gram")
    kind(callbacks=[pipla.hooks.Progress()]).fit(x, y)
    assert "2 chains" in capsys.readouterr().err


def test_callbacks_stop_a_fit():
    kind, x, y = problem("gram")
    early = pipla.hooks.EarlyStop(tolerance=1e3, every=10, least=10)
    model = kind(callbacks=[early]).fit(x, y)
    assert model.status_ is Status.STOPPED
    assert model.n_iter_ == HALF  # there is no answer before
    assert "stopped by a callback" in model.message_
    assert "sweeps: theta has" in model.message_


def test_a_fit_is_stopped_once_there_is_an_answer():
    kind, x, y = problem("gram")
    model = kind(callbacks=stop_at(60)).fit(x, y)
    assert model.status_ is Status.STOPPED
    assert model.message_ == "stopped by a callback after 430 of 580 sweeps: At"


def test_callbacks_are_checked_and_cloned():
    kind, x, y = problem("gram")
    with pytest.raises(TypeError, match="callbacks must be a list"):
        kind(callbacks=print).fit(x, y)
    copied = clone(kind(callbacks=stop_at(ONE_ROUND))).fit(x, y)
    assert copied.status_ is Status.STOPPED
    assert copied.n_iter_ == ONE_ROUND


# Status and Ctrl-C. #


def test_a_fit_that_came_to_its_end_is_completed():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((200, 5))
    model = SparseLinearRegression().fit(x, x[:, 0] + rng.standard_normal(200))
    assert model.status_ is Status.COMPLETED
    assert model.message_ == "completed 580 sweeps"


@pytest.mark.parametrize("step", [17, 280, 429])
def test_ctrl_c_before_anything_is_sampled_is_raised(step):
    kind, x, y = problem("gram")
    model = kind(callbacks=interrupt_at(step))
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, y)
    assert not hasattr(model, "coef_")


def test_ctrl_c_in_the_first_round_keeps_its_first_half():
    kind, x, y = problem("gram")
    with pytest.warns(ConvergenceWarning, match="interrupted after 500 of 580 sweeps"):
        model = kind(callbacks=interrupt_at(500)).fit(x, y)
    assert model.status_ is Status.INTERRUPTED
    assert model.message_ == "interrupted after 500 of 580 sweeps; resume() continues there"
    assert model.message_ in map(str, model.findings_)
    assert "interrupted" in model.summary()
    assert len(model._answer_.draws) == 2 * (HALF - BLOCKS[-1])
    whole = kind().fit(x, y)
    assert np.max(np.abs(model.predict(x) - whole.predict(x))) < model.noise_
    assert_same(model.set_params(callbacks=None).resume(x, y), whole)


def test_ctrl_c_later_keeps_the_last_complete_round():
    kind, x, y = problem("gram")
    one = kind(callbacks=stop_at(ONE_ROUND)).fit(x, y)
    with pytest.warns(ConvergenceWarning, match="interrupted after 1000 of 1180"):
        model = kind(callbacks=interrupt_at(1000)).fit(x, y)
    assert model.n_iter_ == 1000
    np.testing.assert_array_equal(model._answer_.draws, one._answer_.draws)
    np.testing.assert_array_equal(model.coef_, one.coef_)


def test_ctrl_c_within_sweeps_leaves_no_trace_of_them(monkeypatch):
    """The sweeps in which it comes are made again, from copies."""
    kind, x, y = problem("labels")
    whole = kind().fit(x, y)
    sweep, calls = GlmChain.sweep, []

    def interrupted(chain, prior, rates, thin, tally, part=None):
        sweep(chain, prior, rates, thin, tally, part)
        if part and part[1] > 50 and len(rates) == 150:
            calls.append(part)
            raise KeyboardInterrupt

    first = kind(callbacks=[At(HALF, lambda: monkeypatch.setattr(GlmChain, "sweep", interrupted))])
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        first.fit(x, y)
    assert calls
    assert first.status_ is Status.INTERRUPTED
    monkeypatch.setattr(GlmChain, "sweep", sweep)
    assert_same(first.set_params(callbacks=None).resume(x, y), whole)


def test_ctrl_c_while_probabilities_are_stacked(monkeypatch):
    monkeypatch.setattr("pipla.regression._answers.stacked", lambda *arguments: ctrl_c())
    kind, x, y = problem("labels")
    with pytest.warns(ConvergenceWarning, match="before probabilities were stacked"):
        model = kind().fit(x, y)
    assert model.status_ is Status.INTERRUPTED
    assert model.stacking_ == 1


def test_other_priors_have_a_status_and_resume():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 3))
    y = x[:, 0] + rng.standard_normal(40)
    whole = SparseLinearRegression("laplace", callbacks=stop_at(60)).fit(x, y)
    assert whole.status_ is Status.STOPPED
    model = SparseLinearRegression("laplace", callbacks=stop_at(20)).fit(x, y)
    assert model.n_iter_ == 20
    model.set_params(callbacks=stop_at(60)).resume(x, y)
    assert model.n_iter_ == 60
    np.testing.assert_array_equal(model.coef_, whole.coef_)


# Files, and resuming. #


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [HALF, 471, 777])
def test_a_fit_resumes_from_its_file_bit_for_bit(kind, step, tmp_path):
    kind, x, y = problem(kind)
    whole = kind(callbacks=stop_at(TWO_ROUNDS)).fit(x, y)
    if whole.n_iter_ == ONE_ROUND:
        whole.resume(x, y, rounds=1)
    part = kind(callbacks=interrupt_at(step)).fit(x, y)
    if part.status_ is not Status.INTERRUPTED:  # one round was enough
        part.resume(x, y, rounds=1)
    again = kind.load(part.save(tmp_path / "part"))
    assert again.status_ is Status.INTERRUPTED
    assert again.message_ == part.message_
    assert again.callbacks is None
    assert_same(again, part)
    assert_same(again.resume(x, y, rounds=2 if step < ONE_ROUND else 1), whole)


FRESH = """
import sys, numpy as np
from pipla.regression import SparseLinearRegression
data = np.load(sys.argv[1])
model = SparseLinearRegression.load(sys.argv[2]).resume(data["x"], data["y"], rounds=1)
model.save(sys.argv[3])
"""


def test_two_rounds_are_one_round_a_file_a_new_process_and_another(tmp_path):
    kind, x, y = problem("gram")
    whole = kind(callbacks=stop_at(TWO_ROUNDS)).fit(x, y)
    assert whole.n_iter_ == TWO_ROUNDS
    one = kind(callbacks=stop_at(ONE_ROUND)).fit(x, y)
    one.save(tmp_path / "one")
    np.savez(tmp_path / "data.npz", x=x, y=y)
    names = [tmp_path / name for name in ("data.npz", "one", "two")]
    source = Path(pipla.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FRESH, *map(str, names)],
        check=True,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    assert_same(kind.load(tmp_path / "two"), whole)


def test_seeds_that_nobody_knows_resume_bit_for_bit(tmp_path):
    kind, x, y = problem("gram")
    one = kind(callbacks=stop_at(ONE_ROUND), random_state=None).fit(x, y)
    again = kind.load(one.save(tmp_path / "one"))
    assert_same(one.set_params(callbacks=None).resume(x, y, rounds=1), again.resume(x, y, rounds=1))
    assert one.n_iter_ == TWO_ROUNDS


def test_a_completed_fit_gets_another_round():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((200, 5))
    y = x[:, 0] + rng.standard_normal(200)
    model = SparseLinearRegression().fit(x, y)
    assert model.n_iter_ == ONE_ROUND
    assert model.resume(x, y).n_iter_ == TWO_ROUNDS
    assert model.status_ is Status.COMPLETED
    with pytest.raises(ValueError, match="rounds must be"):
        model.resume(x, y, rounds=0)


def test_other_data_are_warned_of_or_refused():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 3))
    model = SparseLinearRegression(callbacks=stop_at(ONE_ROUND)).fit(x, x[:, 0])
    with pytest.warns(OtherModelWarning, match="X, y or sample_weight are not those"):
        model.set_params(callbacks=None).resume(x, x[:, 1], rounds=1)
    with pytest.raises(ValueError, match="3 features"):
        model.resume(x[:, :2], x[:, 0])
    with pytest.warns(OtherModelWarning), pytest.raises(DamagedResultError, match="shape"):
        model.resume(np.column_stack([x[:, :2], np.ones(50)]), x[:, 0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": 7}, "number of sweeps"),
        ({"block": 10_000}, "other chains or blocks"),
        ({"positions": ()}, "other chains or blocks"),
        ({"half": ()}, "sums of other shapes"),
    ],
)
def test_a_state_that_cannot_be_is_refused(change, words, tmp_path):
    """The compiled sweeps would read and write wherever a wrong shape leads them."""
    kind, x, y = problem("gram")
    model = kind(callbacks=interrupt_at(500)).fit(x, y)
    altered = model.fit_._replace(history=model.fit_.history._replace(**change))
    model._answer_ = model._answer_._replace(fit=altered)
    again = kind.load(model.save(tmp_path / "altered"))
    with pytest.raises(DamagedResultError, match=words):
        again.resume(x, y)


def test_a_file_of_a_state_holds_numbers_only(tmp_path):
    kind, x, y = problem("counts")
    part = kind(callbacks=interrupt_at(500)).fit(x, y)
    saved = storage.load(part.save(tmp_path / "part"))
    assert saved.name == kind.__name__
    assert saved.parameters["callbacks"] == {"value": None}


def test_a_warm_start_follows_a_file(tmp_path):
    kind, x, y = problem("gram")
    model = kind(warm_start=True).fit(x, y)
    again = kind.load(model.save(tmp_path / "model"))
    assert_same(model.fit(x, y), again.fit(x, y))
