"""Sweeps: a grid of settings times seeds is one program, and each lane is the run it stands for."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.engine import compiled
from pipla.testing import compilations

pytestmark = pytest.mark.slow

D, N = 3, 4
Y = np.array([0.5, -1.0, 2.0])
START = np.random.default_rng(0).normal(size=(N, D))
KEY = jax.random.key(7)


def smooth(theta, x, y):
    return jnp.sum((x - y) ** 2) / 2 + (theta - 1.0) ** 2 / 2


MODEL = pipla.Model(smooth, pipla.prox.LaplaceLocation(2.0), data=Y)
SETTINGS = [pipla.PIPGLA(step) for step in np.linspace(0.01, 0.2, 8)]


def sweep(algorithms=SETTINGS, *, theta=0.5, particles=START, model=MODEL, **options):
    options = {"num_steps": 30, "key": KEY, "num_replicates": 16, "burn_in": 5} | options
    return pipla.sweep(
        model, algorithms, theta=jnp.asarray(theta), particles=jnp.asarray(particles), **options
    )


def alone(result, setting, replicate, algorithms=SETTINGS, *, theta=0.5, particles=START):
    return pipla.run(
        MODEL,
        algorithms[setting],
        theta=jnp.asarray(theta),
        particles=jnp.asarray(particles),
        num_steps=result.num_steps,
        burn_in=result.burn_in,
        key=result.keys[replicate],
        check=False,
    )


@pytest.fixture(scope="module")
def grid():
    return sweep()


def test_a_grid_of_settings_and_seeds_is_one_program():
    with compilations() as compiled:
        sweep(model=pipla.Model(lambda theta, x, y: smooth(theta, x, y), data=Y))
    assert len([program for program in compiled if "advance" in program]) == 1


def test_changing_the_numbers_compiles_nothing(grid):
    others, key = [pipla.PIPGLA(step) for step in np.linspace(0.02, 0.1, 8)], jax.random.key(9)
    with compilations() as compiled:
        sweep(others, theta=0.1, particles=-START, num_steps=41, key=key, burn_in=3)
    assert compiled == []


def test_axes_are_settings_replicates_steps(grid):
    assert grid.theta_trace.shape == (8, 16, 30)
    assert grid.particles.shape == (8, 16, N, D)
    assert grid.theta.shape == grid.theta_mcse.shape == grid.theta_last.shape == (8, 16)
    assert grid.x_mean.shape == grid.x_variance.shape == (8, 16, D)
    assert grid.finite.shape == (8, 16)
    assert grid.finite.all()
    assert grid.keys.shape == (16,)
    assert not grid.interrupted
    np.testing.assert_array_equal(grid.theta_last, grid.theta_trace[:, :, -1])
    np.testing.assert_allclose(grid.theta, grid.theta_trace[:, :, 5:].mean(axis=2))


@pytest.mark.parametrize(("setting", "replicate"), [(0, 0), (3, 11), (7, 15)])
def test_a_lane_is_the_run_with_its_key(grid, setting, replicate):
    result = alone(grid, setting, replicate)
    lane = (setting, replicate)
    close = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(grid.theta_trace[lane], result.theta_trace, **close)
    np.testing.assert_allclose(grid.particles[lane], result.particles, **close)
    np.testing.assert_allclose(grid.theta[lane], result.theta, **close)
    np.testing.assert_allclose(grid.theta_mcse[lane], result.theta_mcse, **close)
    np.testing.assert_allclose(grid.x_mean[lane], result.x_mean, **close)
    np.testing.assert_allclose(grid.x_variance[lane], result.x_variance, **close)


def test_replicates_differ_and_settings_share_their_keys(grid):
    assert np.unique(grid.theta_last).size == grid.theta_last.size
    np.testing.assert_array_equal(
        jax.random.key_data(grid.keys),
        jnp.stack([jax.random.key_data(jax.random.fold_in(KEY, r)) for r in range(16)]),
    )


def test_a_replicate_does_not_depend_on_how_many_there_are(grid):
    few = sweep(SETTINGS[:2], num_replicates=2)
    np.testing.assert_allclose(few.theta_trace, grid.theta_trace[:2, :2], rtol=1e-10)


def test_one_algorithm_is_a_grid_of_one():
    single = sweep(SETTINGS[0], num_replicates=4)
    assert single.theta_trace.shape == (1, 4, 30)


def test_each_replicate_may_have_its_own_start():
    thetas = jnp.linspace(-1.0, 1.0, 2)
    clouds = jnp.stack([START, START + 1])
    result = sweep(
        SETTINGS[:2],
        theta=thetas,
        particles=clouds,
        num_replicates=2,
        start_per_replicate=True,
        num_steps=12,
    )
    expected = alone(result, 1, 1, theta=thetas[1], particles=clouds[1])
    np.testing.assert_allclose(result.theta_trace[1, 1], expected.theta_trace, rtol=1e-10)


def test_pytrees_of_theta_and_particles():
    model = pipla.Model(
        lambda theta, x, y: jnp.sum((x["w"] - y) ** 2) / 2 + jnp.sum(theta["b"] ** 2),
        pipla.prox.LaplaceLocation().on(theta="a", x="w"),
        data=Y,
    )
    result = pipla.sweep(
        model,
        [pipla.PGD(0.05), pipla.PGD(0.1)],
        theta={"a": 0.1, "b": jnp.ones(2)},
        particles={"w": START, "v": jnp.ones((N, 2, 2))},
        num_steps=5,
        num_replicates=2,
        key=KEY,
    )
    assert result.theta_trace["a"].shape == (2, 2, 5)
    assert result.theta["b"].shape == (2, 2, 2)
    assert result.particles["v"].shape == (2, 2, N, 2, 2)


def test_numbers_left_out_are_filled_in():
    result = sweep([pipla.PIPGLA(), pipla.PIPGLA()], num_replicates=2, num_steps=6)
    np.testing.assert_array_equal(result.theta_trace[0], result.theta_trace[1])


def test_a_diverging_lane_is_flagged_and_disturbs_no_other():
    settings = [pipla.PIPGLA(step) for step in (0.1, 40.0, 0.05, 0.2)]
    calm = [settings[0], pipla.PIPGLA(0.2), *settings[2:]]
    one, other = (sweep(each, num_replicates=1, num_steps=400) for each in (settings, calm))
    np.testing.assert_array_equal(one.finite[:, 0], [True, False, True, True])
    assert not np.isfinite(one.theta_trace[1, 0, -1])
    assert other.finite.all()
    rest = [0, 2, 3]
    np.testing.assert_array_equal(one.theta_trace[rest], other.theta_trace[rest])
    np.testing.assert_array_equal(one.particles[rest], other.particles[rest])


def test_many_steps_are_cut_into_chunks_without_a_seam(monkeypatch):
    whole = sweep(SETTINGS[:2], num_replicates=2, num_steps=50)
    monkeypatch.setattr(compiled, "capacity_for", lambda theta: 16)
    pieces = sweep(SETTINGS[:2], num_replicates=2, num_steps=50)
    np.testing.assert_allclose(pieces.theta_trace, whole.theta_trace, rtol=1e-12)
    np.testing.assert_allclose(pieces.x_variance, whole.x_variance, rtol=1e-12)


def test_ctrl_c_returns_the_chunks_that_are_done(monkeypatch):
    whole = sweep(SETTINGS[:2], num_replicates=2, num_steps=50)
    calls = []
    advance = compiled.advance

    def kept(program):
        calls.append(1)
        if len(calls) == 5:  # the first two make no step
            raise KeyboardInterrupt
        return advance.kept(program)

    monkeypatch.setattr(compiled, "capacity_for", lambda theta: 16)
    monkeypatch.setattr(compiled, "advance", types.SimpleNamespace(kept=kept))
    part = sweep(SETTINGS[:2], num_replicates=2, num_steps=50)
    assert part.interrupted
    done = part.num_steps
    assert 1 < done <= 1 + 4  # the first two chunks: one step, and at most four times as many
    np.testing.assert_allclose(part.theta_trace, whole.theta_trace[:, :, :done], rtol=1e-12)


def test_a_bar_for_all_lanes(capsys):
    sweep(SETTINGS[:2], num_replicates=2, num_steps=20, progress=True)
    shown = capsys.readouterr().err
    assert "PIPGLA × 4" in shown
    assert "20/20" in shown


# Several devices. #

SCRIPT = """
import functools, json, re, sys, types
import jax, jax.numpy as jnp, numpy as np
import pipla
from pipla.engine import compiled
jax.config.update("jax_enable_x64", True)

seen, words = [], set()
from pipla.engine import devices, driver
def watched(advance, at):
    def kept(first):
        compiled = advance.kept(first)
        def watch(*arguments):
            leaf = arguments[at].state.particles
            shards = sorted(shard.data.shape for shard in leaf.addressable_shards)
            seen.append((len(leaf.sharding.device_set), leaf.sharding.is_fully_replicated, shards))
            program = compiled.func.lower(*compiled.args, *arguments).compile().as_text()
            words.update(re.findall(r"all-[a-z]+|collective-[a-z]+", program))
            return compiled(*arguments)
        watch.trace = lambda *arguments: compiled.func.trace(*compiled.args, *arguments)
        return functools.partial(watch)
    return types.SimpleNamespace(kept=kept)
compiled.advance, compiled.advance_over = (
    watched(compiled.advance, 0), watched(compiled.advance_over, 1)
)

model = pipla.Model(
    lambda theta, x, y: jnp.sum((x - y) ** 2) / 2, pipla.prox.LaplaceLocation(), data=jnp.arange(3.0)
)
particles = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
result = pipla.sweep(
    model, [pipla.PIPGLA(0.1), pipla.PIPGLA(0.05)], theta=jnp.zeros(()), particles=particles,
    num_steps=20, num_replicates=4, key=jax.random.key(0),
)
first, last = seen[0], seen[-1]
json.dump({
    "devices": jax.device_count(), "first": first, "last": last, "words": sorted(words),
    "odd": devices.mesh_for((6,)) is None,
    "trace": result.theta_trace.tolist(),
    "x_mean": result.x_mean.tolist(), "particles": result.particles.tolist(),
}, sys.stdout)
"""


def on_devices(count):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(count), "JAX_PLATFORMS": "cpu"}
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return json.loads(output)


def test_lanes_are_spread_over_devices_and_give_the_same_numbers():
    one, four = on_devices(1), on_devices(4)
    assert (one["devices"], four["devices"]) == (1, 4)
    assert one["first"] == [1, True, [[8, 4, 3]]]
    for moment in ("first", "last"):
        assert four[moment] == [4, False, [[2, 4, 3]] * 4]  # two lanes on each device
    for name in ("trace", "x_mean", "particles"):
        np.testing.assert_allclose(four[name], one[name], rtol=1e-12)
    assert four["odd"]  # six lanes do not divide among four devices: they stay together
    assert four["words"] == []  # no device waits for another, even in the loop of the prox


def test_arrays_of_numbers_are_settings():
    steps = jnp.array([0.01, 0.1])
    found = sweep(pipla.MYIPLA(steps, smoothing=10 * steps), num_replicates=2)
    listed = sweep([pipla.MYIPLA(s, smoothing=10 * s) for s in (0.01, 0.1)], num_replicates=2)
    np.testing.assert_array_equal(found.theta_trace, listed.theta_trace)
    with pytest.raises(ValueError, match=r"equally many numbers.*'step_size': 2, 'smoothing': 3"):
        sweep(pipla.MYIPLA(steps, smoothing=jnp.ones(3)))


# Lanes that are lost, and resuming. #


def test_a_lost_lane_goes_back_to_its_last_finite_state():
    settings = [pipla.PIPGLA(0.1), pipla.PIPGLA(40.0)]
    both = sweep(settings, num_replicates=2, num_steps=400)
    np.testing.assert_array_equal(both.finite, [[True, True], [False, False]])
    assert "2 of 4 runs did not stay finite" in both.message
    for replicate in range(2):
        single = alone(both, 1, replicate, settings)
        assert single.status is pipla.Status.NONFINITE
        assert both.last_finite[1, replicate] == single.num_steps
        trace = both.theta_trace[1, replicate]
        np.testing.assert_allclose(trace[: single.num_steps], single.theta_trace, rtol=1e-9)
        assert np.isnan(trace[single.num_steps :]).all()
        np.testing.assert_allclose(both.particles[1, replicate], single.particles, rtol=1e-9)
    np.testing.assert_array_equal(both.last_finite[0], [-1, -1])


def test_a_sweep_whose_runs_are_all_lost_stops():
    lost = sweep([pipla.PIPGLA(40.0)], num_replicates=2, num_steps=5000)
    assert lost.status is pipla.Status.NONFINITE
    assert lost.num_steps < 5000
    assert np.isfinite(lost.particles).all()


def test_a_resumed_sweep_is_the_sweep_that_never_stopped():
    settings = [pipla.PIPGLA(0.1), pipla.PIPGLA(40.0), pipla.PIPGLA(0.2)]
    whole = sweep(settings, num_replicates=2, num_steps=400)
    part = sweep(settings, num_replicates=2, num_steps=150).resume(MODEL, num_steps=250)
    assert part.num_steps == 400
    for name in ("theta_trace", "particles", "x_mean", "x_variance", "finite", "last_finite"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name))


def test_resuming_moments_of_a_quantity_in_a_sweep_needs_the_quantity():
    save = pipla.Save(1, quantity=lambda theta, x: x - theta)
    whole = sweep(SETTINGS[:2], num_replicates=2, save=save)
    part = sweep(SETTINGS[:2], num_replicates=2, save=save, num_steps=20)
    with pytest.raises(ValueError, match="save is needed"):
        part.resume(MODEL, num_steps=10)
    again = part.resume(MODEL, num_steps=10, save=save)
    np.testing.assert_array_equal(again.x_mean, whole.x_mean)


# Tables. #


def test_a_sweep_prints_one_row_per_setting(grid):
    title, header, *rows = repr(grid).splitlines()
    assert title.startswith("SweepResult(8 settings × 16 replicates, 30 steps, 128 of 128 finite")
    assert header.split() == ["step_size", "theta", "finite"]
    assert len(rows) == 8
    number, step, mean, sign, error, finite = rows[3].split()
    assert (number, sign, finite) == ("3", "±", "16/16")
    expected = grid.theta[3].mean(), np.sqrt(np.sum(grid.theta_mcse[3] ** 2)) / 16
    np.testing.assert_allclose([float(mean), float(error)], expected, rtol=1e-3)
    np.testing.assert_allclose(float(step), np.linspace(0.01, 0.2, 8)[3], rtol=1e-3)


def test_a_long_table_is_cut_and_lost_runs_are_counted(grid):
    finite = grid.finite.copy()
    finite[0], finite[1, :4] = False, False
    lost = dataclasses.replace(grid, finite=finite)
    rows = repr(lost).splitlines()[2:]
    assert rows[0].split()[2:] == ["-", "0/16"]
    assert rows[1].split()[-1] == "12/16"
    many = {"finite": np.ones((64, 2), bool), "theta_trace": grid.theta_trace.reshape(64, 2, 30)}
    last = repr(dataclasses.replace(grid, **many, algorithms=None)).splitlines()[-1]
    assert last == "... and 44 more settings"


def test_a_sweep_as_a_data_frame_has_one_row_per_run(grid, monkeypatch):
    # A stand-in: pandas is not among the packages that tests need.
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=dict))
    frame = grid.to_pandas()
    names = ["setting", "replicate", "step_size", "theta", "theta_mcse"]
    assert list(frame) == [*names, "finite", "last_finite", "prox_gap"]
    assert all(len(column) == 128 for column in frame.values())
    row = 3 * 16 + 11
    assert (frame["setting"][row], frame["replicate"][row]) == (3, 11)
    assert frame["theta"][row] == grid.theta[3, 11]
    assert frame["theta_mcse"][row] == grid.theta_mcse[3, 11]
    traces = {"a": grid.theta_trace, "b": np.stack([grid.theta_trace] * 2, axis=-1)}
    frame = dataclasses.replace(grid, theta_trace=traces).to_pandas()
    assert {"theta['a']", "theta['b'][0]", "theta_mcse['b'][1]"} <= set(frame)


def test_a_missing_pandas_is_named_with_its_extra(grid, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"a table of a sweep needs .* 'pipla\[pandas\]'"):
        grid.to_pandas()
