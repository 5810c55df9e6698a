"""Modules as theta and x.

Only the arrays of floats in a module are learned. Its functions, integers and texts are carried along,
and everything that a user writes sees them.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import _trees
from pipla.algorithms.wrappers import adaptive
from pipla.engine import result as result_file
from pipla.engine.packing import with_scale_like
from pipla.models.model import theta_parts, without_fixed_leaves
from pipla.tuning.curvature import LocalGeometry, stiffness_ratios

pytestmark = pytest.mark.slow

KEY = jax.random.key(3)


class Link(eqx.Module):
    """A location and a slope, with settings that are not marked static."""

    bias: jax.Array
    slope: jax.Array
    act: Callable[[Any], Any] = jnp.tanh
    name: str = "link"
    power: int = 2
    rate: float = 0.5
    nothing: None = None

    def __call__(self, x):
        assert self.name == "link"
        return self.act(self.bias + self.slope * x) ** self.power * self.rate


class Latent(eqx.Module):
    """One latent vector behind an attribute, with a function."""

    inner: tuple[jax.Array, ...]
    shape: Callable[[Any], Any] = jnp.sin
    size: int = 3
    kinds: np.ndarray = eqx.field(default_factory=lambda: np.arange(2))


DATA = jnp.linspace(-1.0, 1.0, 3)
LINK = Link(jnp.asarray(0.3), jnp.asarray([0.5, -0.2, 0.1]))
PLAIN = {"bias": LINK.bias, "slope": LINK.slope}
VALUES = jax.random.normal(jax.random.key(1), (4, 3))
CLOUD = Latent((VALUES,))


def smooth(theta, x, data):
    return jnp.sum((theta(x.shape(x.inner[0])) + x.inner[0] - data) ** 2)


def smooth_plain(theta, x, data):
    value = jnp.tanh(theta["bias"] + theta["slope"] * jnp.sin(x[0])) ** 2 * 0.5
    return jnp.sum((value + x[0] - data) ** 2)


TERM = pipla.prox.LaplaceLocation()
MODEL = pipla.Model(smooth, TERM.on(theta="bias", x=("inner", 0)), data=DATA)
MODEL_PLAIN = pipla.Model(smooth_plain, TERM.on(theta="bias", x=0), data=DATA)
OPTIONS = {"num_steps": 12, "key": KEY, "burn_in": 4, "check": False}
ALGORITHM = pipla.PIPGLA(0.05)


def run(**options):
    return pipla.run(MODEL, ALGORITHM, **{"theta": LINK, "particles": CLOUD} | OPTIONS | options)


@pytest.fixture(scope="module")
def result():
    return run()


@pytest.fixture(scope="module")
def plain():
    return pipla.run(MODEL_PLAIN, ALGORITHM, theta=PLAIN, particles=(VALUES,), **OPTIONS)


# Which leaves are learned. #


def test_in_a_module_arrays_of_floats_are_learned_and_the_rest_is_fixed():
    learned, fixed = _trees.split({"a": 1.0, "net": LINK, "f": jnp.cos})
    assert learned["f"] is None
    assert (learned["net"].act, learned["net"].power, learned["net"].rate) == (None,) * 3
    assert len(jax.tree.leaves(learned)) == 3
    assert (fixed["a"], fixed["net"].bias, fixed["net"].power) == (None, None, 2)
    again = _trees.combine(learned, fixed)
    assert again["net"].act is jnp.tanh
    assert again["f"] is jnp.cos


def test_a_model_of_floats_alone_comes_back_as_it_is():
    model, theta, particles = without_fixed_leaves(MODEL_PLAIN, PLAIN, (VALUES,))
    assert model is MODEL_PLAIN
    assert theta is PLAIN
    assert particles[0] is VALUES
    assert model.fixed == (None, None)


@pytest.mark.parametrize("theta", [0, {"a": 0, "b": 1.0}, {"a": True, "b": 1.0}, [jnp.arange(3)]])
def test_an_integer_outside_of_a_module_is_refused(theta):
    with pytest.raises(TypeError, match=r"theta.* must be floating"):
        run(theta=theta)


def test_a_term_on_a_leaf_that_is_not_learned_is_refused():
    theta = Link(0.3, LINK.slope)  # a Python number in a module is a setting
    with pytest.raises(ValueError, match=r"theta\.bias belongs to a term, but is not learned"):
        run(theta=theta)


def test_a_theta_of_functions_alone_is_refused():
    with pytest.raises(TypeError, match="theta"):
        run(theta={"f": jnp.tanh})


# A run on modules is the run on their arrays. #


def test_a_run_on_modules_is_bit_for_bit_that_on_their_arrays(result, plain):
    for name in ("bias", "slope"):
        np.testing.assert_array_equal(
            getattr(result.theta_trace, name), plain.theta_trace[name], strict=True
        )
    np.testing.assert_array_equal(result.particles.inner[0], plain.particles[0])
    np.testing.assert_array_equal(result.x_mean.inner[0], plain.x_mean[0])


def test_what_a_result_holds_of_theta_and_x_are_modules(result):
    for theta in (result.theta, result.theta_last):
        assert type(theta) is Link
        assert (theta.act, theta.name, theta.power) == (jnp.tanh, "link", 2)
        assert theta(jnp.ones(3)).shape == (3,)
    assert result.particles.shape is result.x_mean.shape is jnp.sin
    for tree in (result.theta_trace, result.theta_mcse):
        assert type(tree) is Link
        assert tree.act is None
    assert repr(result).startswith("Result(PIPGLA: theta=(")


def test_callbacks_and_quantities_see_modules():
    seen = []

    def look(view):
        seen.append(view.theta(np.ones(3)).shape)
        seen.append(view.particles.shape is view.x_mean.shape is jnp.sin)

    def quantity(theta, x):
        return {"link": theta(x.inner[0]), "x": x}

    save = pipla.Save(moments_every=1, particles_every=1, quantity=quantity)
    run(callbacks=[look], save=pipla.Save(moments_every=1), chunk_size=12)
    assert seen == [(3,), True]
    found = run(save=save)
    links = [
        jax.vmap(Link(bias, slope))(x)
        for bias, slope, x in zip(
            found.theta_trace.bias,
            found.theta_trace.slope,
            found.saved_particles["x"].inner[0],
            strict=True,
        )
    ]
    np.testing.assert_allclose(found.saved_particles["link"], np.stack(links), rtol=1e-12)
    np.testing.assert_allclose(found.x_mean["link"], np.mean(links[4:], axis=(0, 1)), rtol=1e-12)


def test_a_log_holds_the_numbers_that_have_a_trace(tmp_path):
    run(callbacks=[pipla.hooks.Log(tmp_path / "log.csv", every=12)])
    header = (tmp_path / "log.csv").read_text().splitlines()[0]
    assert header == "step,seconds,theta.bias,theta.slope,prox_gap"


def test_a_sweep_of_modules_holds_modules_and_notices_another_model():
    options = {name: OPTIONS[name] for name in ("num_steps", "key", "burn_in")}
    found = pipla.sweep(MODEL, ALGORITHM, theta=LINK, particles=CLOUD, num_replicates=2, **options)
    assert found.theta.act is found.theta_last.act is jnp.tanh
    assert found.particles.shape is jnp.sin
    alone = run(key=found.keys[1])
    np.testing.assert_allclose(found.theta_trace.slope[0, 1], alone.theta_trace.slope, rtol=1e-10)
    other = pipla.Model(smooth, MODEL.nonsmooth, data=2 * DATA)
    with pytest.warns(UserWarning, match="model is not the one"):
        more = found.resume(other, num_steps=3)
    assert more.theta_trace.bias.shape == (1, 2, 15)


def test_map_estimate_and_suggestions_take_modules():
    one = Latent((VALUES[0],))
    found = pipla.map_estimate(MODEL, LINK, one, step_size=0.1)
    assert found.x.shape is jnp.sin
    assert found.potential < MODEL.potential(LINK, one) - 0.1
    numbers = pipla.tuning.suggest(MODEL, LINK, CLOUD)
    assert numbers.step_size > 0
    assert numbers.theta_scale.act is None
    np.testing.assert_allclose(numbers.theta_scale.bias, 1 / 3)  # 1/d: its term couples it to x


def test_a_theta_scale_is_chosen_beside_leaves_that_are_none():
    theta, x = {"a": jnp.asarray(0.0), "none": None, "w": jnp.ones(2)}, jnp.ones((4, 3))
    model = pipla.Model(
        lambda theta, x, _: jnp.sum(x**2) + 4 * jnp.sum(theta["w"] ** 2), TERM.on(theta="a")
    )
    scale = LocalGeometry(model, theta, x).theta_scale()
    assert scale["none"] is None
    np.testing.assert_allclose([scale["a"], scale["w"]], [1 / 3, 2 / 8], rtol=1e-6)


# Parts of a module. #


def test_the_arrays_of_a_module_that_no_term_sets_are_one_part():
    class Net(eqx.Module):
        first: Any
        layers: Any
        scale: Any

    net = Net(jnp.ones(2), [jnp.ones((2, 2)), {"b": jnp.ones(3)}], jnp.ones(()))
    theta = {"net": net, "other": jnp.ones(2), "pair": (jnp.ones(1), jnp.ones(1))}
    model = pipla.Model(lambda theta, x, _: jnp.sum(x**2))
    assert sorted(theta_parts(model, theta)) == [(0, 1, 2), (3,), (4,), (5,), (6,)]
    term = pipla.prox.LaplaceLocation().on(theta=("net", "layers", 1, "b"))
    model = pipla.Model(lambda theta, x, _: jnp.sum(x**2), term)
    assert sorted(theta_parts(model, theta)) == [(0, 1), (2,), (3,), (4,), (5,), (6,)]


class Two(eqx.Module):
    a: jax.Array
    b: jax.Array


def coupled(theta, x, matrix):
    v = jnp.concatenate([theta.a, theta.b])
    return v @ matrix @ v / 2 + jnp.sum(x**2)


def test_the_stiffness_of_a_part_is_that_of_its_whole_block(monkeypatch):
    root = np.random.default_rng(0).normal(size=(5, 5))
    matrix = 0.01 * root @ root.T
    model, theta = pipla.Model(coupled, data=matrix), Two(jnp.ones(2), jnp.ones(3))
    ratios = stiffness_ratios(model, theta, jnp.ones((4, 2)))
    expected = 2 / np.linalg.eigvalsh(matrix)[-1]
    np.testing.assert_allclose([ratios.a, ratios.b], expected, rtol=1e-6)
    # Adaptive measures the same, and takes one Hessian product for the whole part. Theta is flatter
    # than x, whose stiffness is 2: without a cap its step is half of that along its curvature.
    taken, original = [], adaptive.theta_block

    def counted(product, theta, x, numbers):
        taken.append(numbers)
        return original(product, theta, x, numbers)

    monkeypatch.setattr(adaptive, "theta_block", counted)
    algorithm = adaptive.Adaptive(pipla.PIPGLA(1.0, theta_noise=False), capped=False)

    @eqx.filter_jit
    def one_step(model, theta):
        state = algorithm.init(model, theta, jnp.ones((4, 2)))
        return algorithm.step(KEY, state, model)[0]

    state = one_step(model, theta)
    assert set(taken) == {(0, 1)}
    stiffness = state.theta_stiffness
    np.testing.assert_allclose([stiffness.a, stiffness.b], 2 / expected, rtol=1e-3)
    np.testing.assert_allclose(_trees.norm(state.theta_direction), 1.0)
    moved = np.concatenate([state.theta.a, state.theta.b]) - 1
    along = -matrix @ np.ones(5) / (2 * stiffness.a)
    longest = 1 / np.sqrt(stiffness.a)
    bounded = along * min(1, longest / np.linalg.norm(along))
    np.testing.assert_allclose(moved, bounded, rtol=1e-9)
    assert expected > 1


def test_a_non_centred_run_takes_modules_and_saves_x():
    class Theta(eqx.Module):
        net: Two
        scale: jax.Array
        act: Any = jnp.tanh

    theta, cloud = Theta(Two(jnp.ones(2), jnp.ones(3)), jnp.asarray(0.0)), Latent((VALUES,))
    model = pipla.Model(
        lambda theta, x, y: coupled(theta.net, theta.act(x.inner[0]) - y, jnp.eye(5)),
        pipla.prox.LaplaceScale().on(theta="scale", x=("inner", 0)),
        data=DATA,
    )
    plain = pipla.noncentred(model)
    found = pipla.run(
        plain.model,
        pipla.Adaptive(pipla.PIPGLA(1.0, theta_noise=False, antithetic=True, reflected=True)),
        **{"theta": theta, "particles": plain.start(theta, cloud), **OPTIONS},
        save=pipla.Save(quantity=plain.back, particles_every=6),
    )
    last, z = found.theta_last, found.particles.inner[0]
    back = jax.vmap(lambda z: plain.back(last, Latent((z,))).inner[0])(z)
    np.testing.assert_allclose(found.saved_particles.inner[0][-1], back, rtol=1e-12)
    assert found.x_mean.shape is jnp.sin
    assert last.scale != 0
    assert last.act is jnp.tanh


# Files. #


def test_modules_are_saved_and_resumed_from_the_same_modules(result, tmp_path):
    result.save(tmp_path / "run")
    again = pipla.load(tmp_path / "run")
    assert again.modules == {"theta": "Link", "particles": "Latent"}
    assert again.theta["power"] == 2
    assert again.theta["name"] == "link"
    assert again.theta["act"] is None
    assert again.x_mean["size"] == again.particles["size"] == 3
    np.testing.assert_array_equal(again.particles["kinds"], [0, 1])
    np.testing.assert_array_equal(again.theta["slope"], result.theta.slope)
    np.testing.assert_array_equal(again.particles["inner"][0], result.particles.inner[0])
    with pytest.raises(ValueError, match=r"theta is needed to resume .* \(Link\)"):
        pipla.resume(tmp_path / "run", MODEL, num_steps=3)
    with pytest.raises(ValueError, match=r"particles is needed to resume .* \(Latent\)"):
        pipla.resume(tmp_path / "run", MODEL, num_steps=3, theta=LINK)
    other = Two(jnp.zeros(1), jnp.zeros(1))
    with pytest.raises(ValueError, match=r"theta does not fit the result, which has no theta\.a"):
        pipla.resume(tmp_path / "run", MODEL, num_steps=3, theta=other, particles=CLOUD)
    blank = jax.tree.map(lambda leaf: leaf * 0, (LINK.bias, LINK.slope))
    more = pipla.resume(again, MODEL, num_steps=3, theta=Link(*blank), particles=CLOUD)
    whole = run(num_steps=15)
    in_memory = pipla.resume(result, MODEL, num_steps=3)
    for found in (more, in_memory):
        assert jax.tree.structure(found.theta_trace) == jax.tree.structure(whole.theta_trace)
        for a, b in zip(
            jax.tree.leaves((found.theta_trace, _trees.split(found.particles)[0])),
            jax.tree.leaves((whole.theta_trace, _trees.split(whole.particles)[0])),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
    again.save(tmp_path / "copy")  # still knows what it lost
    assert pipla.load(tmp_path / "copy").modules == again.modules


def test_a_stored_theta_scale_takes_the_structure_of_theta():
    theta = {"net": Two(jnp.ones(2), jnp.ones(3)), "s": jnp.ones(())}
    scales = {"net": {"a": jnp.asarray(0.1), "b": jnp.asarray(0.2)}, "s": jnp.asarray(0.3)}
    algorithm = adaptive.Adaptive(pipla.PGD(0.1, theta_scale=scales))
    found = with_scale_like(algorithm, theta).scheme.theta_scale
    assert type(found["net"]) is Two
    assert [float(leaf) for leaf in jax.tree.leaves(found)] == [0.1, 0.2, 0.3]
    prefix = pipla.PGD(0.1, theta_scale={"net": 0.5, "s": 1.0})
    assert eqx.tree_equal(with_scale_like(prefix, theta), prefix)


# Another model is noticed. #


def test_resuming_with_another_model_of_the_same_shapes_is_a_warning(plain):
    other = pipla.Model(smooth_plain, TERM.on(theta="bias", x=0), data=DATA + 1)
    with pytest.warns(UserWarning, match="model is not the one that this result was made with"):
        pipla.resume(plain, other, num_steps=1)
    again = pipla.Model(smooth_plain, TERM.on(theta="bias", x=0), data=np.asarray(DATA))
    pipla.resume(plain, again, num_steps=1)  # the same numbers: a warning would be an error here


@pytest.mark.parametrize("size", [5, 1000])
def test_a_fingerprint_is_of_numbers_and_not_of_dtypes(size, monkeypatch):
    monkeypatch.setattr(result_file, "SAMPLE", 100)  # so that ten times as many are thinned
    fingerprint = result_file.fingerprint
    data = np.random.default_rng(0).normal(size=size)
    first = fingerprint(pipla.Model(smooth, data=data))
    assert fingerprint(pipla.Model(smooth, data=data.copy())) == first
    assert fingerprint(pipla.Model(smooth, data=data.astype(np.float32))) == first
    assert fingerprint(pipla.Model(smooth, data=data * (1 + 1e-13))) == first
    assert fingerprint(pipla.Model(smooth, data=data * 1.001)) != first
    moved = data.copy()
    moved[0] += 1e-4
    assert fingerprint(pipla.Model(smooth, data=moved)) != first
    assert fingerprint(pipla.Model(smooth, data=data.reshape(-1, 1))) != first
    assert fingerprint(pipla.Model(smooth, pipla.prox.L1(), data=data)) != first
