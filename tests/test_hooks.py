"""Callbacks: called between chunks, at the steps they ask for, without changing a number."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import hooks

D, N = 3, 4
Y = jnp.asarray([0.5, -1.0, 2.0])
START = jnp.asarray(np.random.default_rng(0).normal(size=(N, D)))


def smooth(theta, x, y):
    return jnp.sum((x - y) ** 2) / 2 + (theta - 1.0) ** 2 / 2


MODEL = pipla.Model(smooth, pipla.prox.LaplaceLocation(2.0), data=Y)


def run(num_steps=50, callbacks=(), **options):
    options = {"algorithm": pipla.PIPGLA(0.1), "theta": jnp.asarray(0.5), "burn_in": 5} | options
    return pipla.run(
        MODEL,
        particles=START,
        num_steps=num_steps,
        key=jax.random.key(7),
        callbacks=callbacks,
        check=False,
        **options,
    )


class At(hooks.Hook):
    """Called at these steps, and wherever else a chunk ends."""

    def __init__(self, *steps):
        self.steps, self.seen = steps, []

    def next_step(self, step):
        return min((at for at in self.steps if at > step), default=None)

    def __call__(self, view):
        self.seen.append(view)


def test_a_hook_is_called_at_the_steps_it_asks_for_and_changes_nothing():
    plain, hook = run(), At(1, 2, 7, 33)
    watched = run(callbacks=[hook])
    assert {1, 2, 7, 33, 50} <= {view.step for view in hook.seen}
    for name in ("theta_trace", "particles", "x_mean", "x_variance"):
        np.testing.assert_array_equal(getattr(watched, name), getattr(plain, name))


def test_a_view_shows_the_run_as_it_would_have_ended_there():
    hook = At(7, 30)
    whole = run(callbacks=[hook])
    (view,) = [view for view in hook.seen if view.step == 30]
    short = run(30)
    assert view.num_steps == 50
    assert 0 < view.seconds <= whole.seconds
    for name in ("particles", "x_mean", "x_variance", "theta_trace"):
        np.testing.assert_array_equal(getattr(view, name), getattr(short, name))
    assert view.theta == whole.theta_trace[29]
    (early,) = [view for view in hook.seen if view.step == 7]
    assert early.x_mean is not None  # burn-in ends after 5 steps
    assert early.prox_gap == 0


def test_before_burn_in_there_are_no_moments():
    hook = At(3)
    run(callbacks=[hook])
    assert hook.seen[0].x_mean is None
    assert hook.seen[0].x_variance is None


def test_the_info_of_a_view_has_the_gradients_at_its_state():
    hook = At(10)
    run(callbacks=[hook])
    view = hook.seen[0]
    expected = MODEL.gradients(jnp.asarray(view.theta), jnp.asarray(view.particles))
    np.testing.assert_allclose(view.info.theta_gradient, expected.theta)
    np.testing.assert_allclose(view.info.particle_gradient, expected.particles)


def test_a_function_may_stop_the_run_and_say_why():
    def enough(view):
        return "that is enough" if view.step >= 20 else None

    result = run(500, callbacks=[enough], chunk_size=10)
    assert result.status is pipla.Status.STOPPED
    assert result.num_steps == 20
    assert result.message.startswith("stopped by a callback after 20 of 500 steps: that is enough")
    assert "stopped" in repr(result)
    np.testing.assert_array_equal(result.theta_trace, run(20).theta_trace)
    rest = pipla.resume(result, MODEL, num_steps=30)
    np.testing.assert_array_equal(rest.theta_trace, run(50).theta_trace)
    named = run(500, callbacks=[lambda view: True])
    assert "<lambda>" in named.message


def test_a_stopped_run_is_saved_and_resumed(tmp_path):
    stopped = run(50, callbacks=[lambda view: view.step >= 8], chunk_size=8)
    stopped.save(tmp_path / "run")
    again = pipla.load(tmp_path / "run")
    assert again.status is pipla.Status.STOPPED
    rest = pipla.resume(again, MODEL, num_steps=42)
    np.testing.assert_array_equal(rest.theta_trace, run(50).theta_trace)


def test_hooks_begin_before_and_end_after_a_run_that_fails():
    class Noted(hooks.Hook):
        def __init__(self):
            self.calls = []

        def begin(self, name, num_steps):
            self.calls.append((name, num_steps))

        def __call__(self, view):
            raise RuntimeError("no")

        def end(self):
            self.calls.append("end")

    hook = Noted()
    with pytest.raises(RuntimeError, match="no"):
        run(callbacks=[hook])
    assert hook.calls == [("PIPGLA", 50), "end"]


def test_evaluate_records_a_value_every_so_many_steps_and_at_the_end():
    largest = hooks.Evaluate(lambda theta, x: x.max(), every=20)
    result = run(50, callbacks=[largest])
    assert [step for step, _ in largest.history] == [20, 40, 50]
    # Equal, because nothing is rounded: two programs may add in another order.
    assert largest.history[-1].value == result.particles.max()


def test_early_stop_waits_until_theta_has_settled():
    stop = hooks.EarlyStop(0.05, every=100)
    result = run(20_000, callbacks=[stop], algorithm=pipla.PIPGLA(0.2))
    assert result.status is pipla.Status.STOPPED
    assert 400 <= result.num_steps < 20_000
    assert "Monte-Carlo error" in result.message
    tail = result.theta_trace[result.num_steps // 2 :]
    assert pipla.diagnostics.monte_carlo_error(tail) <= 0.05
    far = run(1000, callbacks=[hooks.EarlyStop(10.0)], algorithm=pipla.PIPGLA(1e-4), theta=50.0)
    assert far.num_steps == 1000  # a large tolerance does not stop a transient
    assert far.status is pipla.Status.UNRELIABLE


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_log_has_a_line_per_look_and_is_continued(ending, tmp_path):
    path = tmp_path / "logs" / f"run.{ending}"
    result = run(30, callbacks=[hooks.Log(path, every=10)])
    more = pipla.resume(result, MODEL, num_steps=20, callbacks=[hooks.Log(path, every=10)])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file) if ending == "csv" else map(json.loads, file))
    assert [int(row["step"]) for row in rows] == [10, 20, 30, 40, 50]
    np.testing.assert_allclose([float(row["theta"]) for row in rows], more.theta_trace[9::10])
    assert all(float(row["seconds"]) > 0 for row in rows)


def test_parts_of_theta_have_names_in_a_log(tmp_path):
    def parts(theta, x, y):
        return smooth(theta["a"], x, y) + jnp.sum(theta["b"] ** 2)

    pipla.run(
        pipla.Model(parts, data=Y),
        pipla.PGD(0.1),
        theta={"a": jnp.asarray(0.0), "b": jnp.ones(2)},
        particles=START,
        num_steps=4,
        key=jax.random.key(0),
        callbacks=[hooks.Log(tmp_path / "log.jsonl", every=4)],
        check=False,
    )
    row = json.loads((tmp_path / "log.jsonl").read_text())
    assert isinstance(row["theta['a']"], float)
    assert len(row["theta['b']"]) == 2


def test_a_sweep_shows_all_its_runs():
    hook = At(10)
    result = pipla.sweep(
        MODEL,
        [pipla.PIPGLA(0.1), pipla.PIPGLA(0.05)],
        theta=jnp.asarray(0.5),
        particles=START,
        num_steps=20,
        burn_in=2,
        num_replicates=3,
        key=jax.random.key(1),
        callbacks=[hook, lambda view: view.step >= 15],
    )
    (view,) = [view for view in hook.seen if view.step == 10]
    assert view.theta.shape == (2, 3)
    assert view.particles.shape == (2, 3, N, D)
    assert view.x_mean.shape == (2, 3, D)
    np.testing.assert_array_equal(view.theta_trace[-1], result.theta_trace[:, :, 9])
    np.testing.assert_array_equal(view.theta, result.theta_trace[:, :, 9])
    assert result.status in (pipla.Status.STOPPED, pipla.Status.COMPLETED)
    with pytest.raises(TypeError, match="not in sweeps"):
        _ = view.info


BAD = {
    "a single function": lambda: run(callbacks=print),
    "not callable": lambda: run(callbacks=[3]),
    "a word": lambda: run(callbacks="progress"),
    "every": lambda: hooks.Evaluate(print, every=0),
    "function": lambda: hooks.Evaluate(3, every=1),
    "tolerance": lambda: hooks.EarlyStop(-1.0),
    "path": lambda: hooks.Log("log.txt"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_callbacks_are_named(name):
    word = {"not callable": "callbacks", "a single function": "callbacks", "a word": "callbacks"}
    with pytest.raises((TypeError, ValueError), match=word.get(name, name)):
        BAD[name]()
