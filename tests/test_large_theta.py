"""Theta with parts that are too large for a trace, and a network in theta."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pipla
from pipla import _trees
from pipla.engine.batches import COUNT, LEAST, BatchMeans, LargeParts, Running
from pipla.engine.chunk import by_size
from pipla.testing import compilations

pytestmark = pytest.mark.slow

KEY = jax.random.key(3)
VALUES = jax.random.normal(jax.random.key(1), (4, 3))

LARGE = 10_001
CENTRE = jnp.sin(jnp.arange(float(LARGE)))


def pull(theta, x, data):
    # Theta follows the particles, whose noise makes it fluctuate.
    big = theta["big"]
    return jnp.sum(big * (x[0] + 0.01 * data)) / LARGE + jnp.sum(big**2) / 2 + jnp.sum(x**2)


def run_large(num_steps, **options):
    return pipla.run(
        pipla.Model(pull, data=CENTRE),
        pipla.PGD(0.1),
        theta={"big": CENTRE, "s": jnp.asarray(0.5)},
        particles=VALUES,
        **{"num_steps": num_steps, "key": KEY, "burn_in": 5, "check": False} | options,
    )


@pytest.mark.parametrize("steps", [1, 3, 16, 17, 40, 64, 100])
def test_batch_means_have_the_mean_and_error_of_the_series(steps):
    series = np.random.default_rng(steps).normal(size=(steps, 2)).cumsum(axis=0)
    running, means = Running.empty(jnp.zeros(2)), BatchMeans()
    add = jax.jit(Running.add)
    for row in series:
        running = add(running, jnp.asarray(row), jnp.asarray(True))
        running = add(running, jnp.asarray(row + 1e6), jnp.asarray(False))  # not due
        if not means.room(running):
            means, running = means.extended(running), running.emptied()
    kept = LargeParts.of(jnp.asarray(series[-1]), means, running)
    np.testing.assert_allclose(kept.mean(), series.mean(axis=0), rtol=1e-12, atol=1e-12)
    full = steps // kept.length
    assert len(kept.batches) == full
    assert min(steps, COUNT // 2) <= full < COUNT
    if full < LEAST:
        assert np.all(np.isnan(kept.stderr()))
    else:
        cut = series[: full * kept.length].reshape(full, kept.length, 2).mean(axis=1)
        error = cut.std(axis=0, ddof=1) / np.sqrt(full)
        np.testing.assert_allclose(kept.stderr(), error, rtol=1e-9)


def test_which_leaves_of_theta_keep_a_trace():
    def traced(*sizes):
        theta = [jax.ShapeDtypeStruct((7, size), float) for size in sizes]
        small, large = by_size(theta, lanes=1)
        assert [leaf is None for leaf in small] == [leaf is not None for leaf in large]
        return [leaf is not None for leaf in small]

    assert traced(1, 10_000, 10_001) == [True, True, False]
    assert traced(*[10_000] * 10) == [True] * 10
    assert traced(*[10_000] * 10, 101, 100) == [False] * 11 + [True]


@pytest.fixture(scope="module")
def large():
    return run_large(60)


def test_a_large_part_has_no_trace_but_the_same_average(large):
    each = []
    run_large(60, chunk_size=1, callbacks=[lambda view: each.append(np.array(view.theta["big"]))])
    series = np.stack(each)
    assert large.theta_trace["big"] is None
    assert large.theta_trace["s"].shape == (60,)
    np.testing.assert_array_equal(large.theta_last["big"], series[-1])
    np.testing.assert_allclose(large.theta["big"], series[5:].mean(axis=0), rtol=1e-11, atol=1e-14)
    assert (len(large.large.batches["big"]), large.large.length, large.large.seen) == (13, 4, 3)
    means = series[5 : 5 + 52].reshape(13, 4, -1).mean(axis=1)
    error = means.std(axis=0, ddof=1) / np.sqrt(13)
    np.testing.assert_allclose(large.theta_mcse["big"], error, rtol=1e-6, atol=1e-14)
    assert large.theta_mcse is large.theta_mcse  # computed once
    assert "and 10001 numbers without a trace" in repr(large)


def test_printing_a_result_computes_no_errors_of_large_parts(large, monkeypatch):
    monkeypatch.setattr(LargeParts, "stderr", pytest.fail)
    monkeypatch.setattr(LargeParts, "mean", pytest.fail)
    assert repr(dataclasses.replace(large)) == repr(large)


def arrays_kept(tree):
    """The size of all arrays in a result."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, eqx.Module):
        return sum(arrays_kept(getattr(tree, field.name)) for field in dataclasses.fields(tree))
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree) if eqx.is_array_like(leaf))


def test_what_is_kept_of_a_large_part_does_not_grow(large):
    longer = run_large(600)
    rows = [len(result.large.batches["big"]) for result in (longer, large)]
    grown = arrays_kept(longer) - arrays_kept(large) - (rows[0] - rows[1]) * LARGE * 8
    assert max(rows) < COUNT
    assert grown == (600 - 60) * 8  # the trace of one number


def test_chunks_change_no_bit_of_a_large_part(large):
    for size in (1, 7):
        with compilations() as compiled:
            other = run_large(60, chunk_size=size)
        assert not any("advance" in program for program in compiled)
        np.testing.assert_array_equal(other.large.batches["big"], large.large.batches["big"])
        np.testing.assert_array_equal(other.large.partial["big"], large.large.partial["big"])


def test_a_large_part_is_saved_and_resumed_bit_for_bit(large, tmp_path):
    for steps in (6, 21, 37, 50):  # after burn-in; on a merge, on the next one, and after it
        part = run_large(steps)
        part.save(tmp_path / str(steps))
        again = pipla.load(tmp_path / str(steps))
        np.testing.assert_array_equal(again.theta["big"], part.theta["big"])
        np.testing.assert_array_equal(again.theta_mcse["big"], part.theta_mcse["big"])
        whole = pipla.resume(again, pipla.Model(pull, data=CENTRE), num_steps=60 - steps)
        np.testing.assert_array_equal(whole.large.batches["big"], large.large.batches["big"])
        np.testing.assert_array_equal(whole.theta["big"], large.theta["big"])
        assert whole.large.seen == large.large.seen


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seen": 99}, "a length or a number of steps"),
        ({"length": 0, "seen": 0}, "a length or a number of steps"),
        ({"batches": {"big": np.zeros((3, 7)), "s": None}}, "batches of other shapes"),
        ({"batches": {"big": np.zeros((16, LARGE)), "s": None}}, "batches of other shapes"),
        ({"partial": {"big": np.zeros(7), "s": None}}, "parts of other shapes"),
        ({"partial": {"big": np.zeros(LARGE)}}, "different structures"),
        ({"last": {"big": np.zeros(LARGE, int), "s": None}}, "does not consist of real numbers"),
    ],
)
def test_a_file_whose_large_parts_do_not_fit_is_damaged(large, tmp_path, change, words):
    altered = dataclasses.replace(large, large=dataclasses.replace(large.large, **change))
    altered.save(tmp_path / "run")
    with pytest.raises(ValueError, match=words):
        pipla.load(tmp_path / "run")


def test_a_theta_of_one_large_part_alone(tmp_path):
    def alone(theta, x, data):
        return pull({"big": theta}, x, data)

    found = pipla.run(
        pipla.Model(alone, data=CENTRE),
        pipla.PGD(0.1),
        theta=CENTRE,
        particles=VALUES,
        num_steps=12,
        key=KEY,
        burn_in=4,
        check=False,
        callbacks=[pipla.hooks.EarlyStop(1.0, every=1, least=1)],
    )
    assert found.theta_trace is None
    assert found.theta.shape == found.theta_mcse.shape == (LARGE,)
    assert "theta=10001 numbers without a trace" in repr(found)
    found.save(tmp_path / "run")
    np.testing.assert_array_equal(pipla.load(tmp_path / "run").theta, found.theta)


def test_a_sweep_keeps_batch_means_of_large_parts(large, tmp_path):
    model = pipla.Model(pull, data=CENTRE)
    found = pipla.sweep(
        model,
        [pipla.PGD(0.1), pipla.PGD(0.05)],
        theta={"big": CENTRE, "s": jnp.asarray(0.5)},
        particles=VALUES,
        num_steps=40,
        burn_in=5,
        key=KEY,
    )
    one = run_large(40, key=found.keys[0])
    assert found.theta_trace["big"] is None
    np.testing.assert_allclose(found.theta["big"][0, 0], one.theta["big"], rtol=1e-10)
    np.testing.assert_allclose(found.theta_mcse["big"][0, 0], one.theta_mcse["big"], rtol=1e-6)
    found.save(tmp_path / "sweep")
    more = pipla.load(tmp_path / "sweep").resume(model, num_steps=20)
    whole = run_large(60, key=found.keys[0])
    np.testing.assert_allclose(more.theta["big"][0, 0], whole.theta["big"], rtol=1e-10)


# A network in theta, on minibatches: convolutions by adam, two scales by another optimiser. #


class CNN(eqx.Module):
    """A convolution; features for a linear layer whose weights are the latent x."""

    convolution: eqx.nn.Conv2d
    act: Callable[[Any], Any]
    scales: dict[str, jax.Array]

    def __init__(self, key):
        self.convolution = eqx.nn.Conv2d(1, 3, 2, key=key)
        self.act = jax.nn.relu
        self.scales = {"bias": jnp.asarray(0.0), "weight": jnp.asarray(0.0)}

    def __call__(self, image):
        return jnp.mean(self.act(self.convolution(image)), axis=(1, 2))


def classify(theta, x, data):
    scores = jax.vmap(theta)(data["images"]) @ x["weight"] + x["bias"][None]
    return jnp.sum(optax.softmax_cross_entropy_with_integer_labels(scores, data["labels"]))


def labels(theta):
    """Which optimiser drives which leaf."""
    marked = jax.tree.map(lambda _: "network", theta)
    return eqx.tree_at(lambda t: t.scales, marked, {"bias": "scales", "weight": "scales"})


@jax.numpy_dtype_promotion("standard")  # which adam needs
def test_a_network_is_trained_on_batches_saved_and_resumed_bit_for_bit(tmp_path):
    keys = jax.random.split(jax.random.key(0), 3)
    images, classes = jax.random.normal(keys[0], (8, 1, 3, 3)), jnp.arange(8) % 2
    model = pipla.Model(
        classify,
        pipla.prox.LaplaceScale().on(theta=("scales", "weight"), x="weight")
        + pipla.prox.LaplaceScale().on(theta=("scales", "bias"), x="bias"),
        data={"images": images, "labels": classes},
    )
    optimizers = {"network": optax.adam(3e-3), "scales": optax.sgd(0.02)}
    scheme = pipla.PIPGLA(
        0.02,
        theta_update="gradient",
        theta_noise=False,
        theta_optimizer=optax.multi_transform(optimizers, labels),
    )
    algorithm = pipla.Minibatch(scheme, 3, data_rows=True)  # two observations are left over
    start = {
        "theta": CNN(keys[1]),
        "particles": {"weight": jnp.ones((4, 3, 2)).at[..., 1].set(-2.0), "bias": VALUES[:, :2]},
    }

    def train(num_steps, **options):
        fixed = {"key": keys[2], "burn_in": 10, "check": False}
        return pipla.run(model, algorithm, **start, num_steps=num_steps, **fixed, **options)

    whole, part = train(40), train(25)  # in the middle of an epoch of two steps
    part.save(tmp_path / "network")
    again = pipla.load(tmp_path / "network")
    more = pipla.resume(again, model, num_steps=15, algorithm=algorithm, theta=CNN(keys[0]))
    for name in ("theta", "theta_last", "theta_trace", "particles", "x_mean"):
        found, expected = (_trees.split(getattr(result, name))[0] for result in (more, whole))
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        assert jax.tree.leaves(found)
        assert all(map(np.array_equal, jax.tree.leaves(found), jax.tree.leaves(expected))), name
    # The first move of adam is its rate in each weight, that of a scale a multiple of its gradient.
    first = jax.tree.map(lambda leaf: leaf[0], whole.theta_trace)
    moved = np.abs(first.convolution.weight - start["theta"].convolution.weight)
    np.testing.assert_allclose(moved, 3e-3, rtol=1e-3)
    total = np.mean(np.sum(np.abs(VALUES[:, :2]), axis=1))
    np.testing.assert_allclose(first.scales["bias"], -0.02 * (2 * 2 - 2 * total), rtol=1e-6)
    # What is kept grows by the traces, and by nothing else.
    row = sum(leaf[0].nbytes for leaf in jax.tree.leaves(whole.theta_trace))
    assert arrays_kept(whole) - arrays_kept(part) == 15 * row
