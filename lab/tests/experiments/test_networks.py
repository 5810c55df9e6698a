"""The experiments with networks: measures, the published errors, peers, pages."""

import dataclasses
import functools
import json
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import pipla
import pipla.networks
from pipla.cli.app import app
from pipla_lab.data.classification import Classification, Images
from pipla_lab.experiments import find, load, run
from pipla_lab.experiments.networks import (
    convolutional,
    measures,
    peers,
    pruning,
    recommended,
    splitting,
    two_layers,
)
from pipla_lab.experiments.networks.convolution import Convolution, pooled
from pipla_lab.experiments.networks.experiment import NetworkEntry, averaged, measured, summarised
from pipla_lab.experiments.networks.methods import Trained
from pipla_lab.experiments.networks.recommended import quiet_train
from pipla_lab.experiments.networks.rows import NetworkPreset
from pipla_lab.experiments.networks.splitting import SplitHardTanh
from pipla_lab.experiments.page import rebuild
from pipla_lab.experiments.published import (
    AddedGradient,
    CodeScale,
    DividedGradient,
    published_hard_tanh,
)

RNG = np.random.default_rng(0)
QUIET = {"log": lambda line: None, "progress": False}


# Measures. #


def test_error_and_density_are_the_papers():
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]])
    labels = np.array([0, 0, 1, 0])
    assert measures.error(probabilities, labels) == 25.0
    expected = np.mean(np.log([0.9, 0.4, 0.8, 0.7]))
    assert measures.lppd(probabilities, labels) == pytest.approx(expected)
    assert measures.lppd(np.array([[1.0, 0.0]]), np.array([1])) == pytest.approx(np.log(1e-12))


def test_calibration_compares_confidence_with_the_share_that_is_right():
    # Two bins: four images at .95, of which three are right, and two at .65, both right.
    confidence = np.array([0.95] * 4 + [0.65] * 2)
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    labels = np.array([0, 0, 0, 1, 0, 0])
    expected = 100 * (4 * abs(0.75 - 0.95) + 2 * abs(1 - 0.65)) / 6
    assert measures.calibration_error(probabilities, labels) == pytest.approx(expected)
    certain = np.array([[1.0, 0.0]])
    assert measures.calibration_error(certain, np.array([0])) == 0.0


def two_units(particles=1):
    """Unit 0 has small inputs, unit 1 a small output to both classes, unit 2 neither."""
    w = np.array([[0.1, 2.0, 3.0], [-0.2, 1.0, 0.1]])
    v = np.array([[1.0, 5.0], [0.1, -0.2], [2.0, 0.1]])
    return {"w": np.tile(w, (particles, 1, 1)), "v": np.tile(v, (particles, 1, 1))}


def test_units_without_inputs_or_without_outputs_are_dead():
    pruned = measures.prune(two_units(), {"w": 0.5, "v": 0.3})
    assert pruned.dead.tolist() == [[True, True, False]]
    assert pruned.occupancy == pytest.approx(1 / 3)
    # What has no effect is 0 as well.
    np.testing.assert_array_equal(pruned.weights["w"][0], [[0, 0, 3.0], [0, 0, 0]])
    np.testing.assert_array_equal(pruned.weights["v"][0], [[0, 0], [0, 0], [2.0, 0]])
    assert pruned.zeros("w") == pytest.approx(100 * 5 / 6)


def test_removing_dead_units_does_not_change_predictions():
    weights = {"w": RNG.normal(size=(2, 4, 3)), "v": RNG.normal(size=(2, 3, 2))}
    features = RNG.normal(size=(5, 4))
    thresholds = {"w": 0.0, "v": 1.5}
    kept = {name: np.where(np.abs(x) < thresholds[name], 0, x) for name, x in weights.items()}
    pruned = measures.prune(weights, thresholds)
    assert pruned.dead.any()
    np.testing.assert_allclose(
        two_layers.probabilities(pruned.weights, features),
        two_layers.probabilities(kept, features),
        rtol=1e-12,
    )


def test_the_weakest_units_go_first():
    found = pruning.without_units(two_units(), 1 / 3)
    assert np.all(found["w"][0, :, 1] == 0)  # |w| |v| is .5, against 1.1 and 6
    assert np.all(found["w"][0, :, [0, 2]] != 0)
    np.testing.assert_array_equal(pruning.without_units(two_units(), 0.0)["w"], two_units()["w"])


def test_probabilities_are_averaged_over_particles():
    weights = {"w": RNG.normal(size=(3, 4, 5)), "v": RNG.normal(size=(3, 5, 2))}
    features = RNG.normal(size=(7, 4))
    scores = np.tanh(features @ weights["w"]) @ weights["v"]
    each = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    found = two_layers.probabilities(weights, features)
    np.testing.assert_allclose(found, each.mean(axis=0), rtol=1e-10)


# The published errors. #

THETA, LAM, STEP = 0.3, 0.5, 0.05


def test_pixels_that_are_0_everywhere_change_nothing():
    features = RNG.normal(size=(6, 5))
    features[:, [0, 3]] = 0
    images = Images(features, np.array([0, 1, 1, 0, 2, 1]))
    x = {name: jnp.asarray(RNG.normal(size=size)) for name, size in (("w", (5, 4)), ("v", (4, 3)))}
    theta = {"alpha": jnp.zeros(()), "beta": jnp.zeros(())}
    model = two_layers.model(images, two_layers.laplace_terms())
    assert model.data["features"].shape == (6, 3)

    def plain(x):
        log_p = jax.nn.log_softmax(jnp.tanh(features @ x["w"]) @ x["v"])
        return -jnp.sum(log_p[jnp.arange(6), images.labels])

    found = jax.value_and_grad(lambda x: model.smooth_value(theta, x))(x)
    known = jax.value_and_grad(plain)(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, known)
    assert not np.any(found[1]["w"][np.array([0, 3])])


def test_the_scale_of_the_code_is_its_equation():
    """u0 = (theta + W(4 lam e^{-2 theta} S)/2)/d, by SciPy's Lambert function; E1."""
    from scipy.special import lambertw

    x = RNG.normal(size=12)
    theta, moved = CodeScale(1 / 12).prox(THETA, jnp.asarray(x), LAM, LAM)
    argument = 4 * LAM * np.exp(-2 * THETA) * np.abs(x).sum()
    assert float(theta) == pytest.approx((THETA + lambertw(argument).real / 2) / 12)
    threshold = LAM * np.exp(-2 * THETA)
    np.testing.assert_allclose(moved, np.sign(x) * np.maximum(np.abs(x) - threshold, 0))


@pytest.mark.parametrize("start", [1.0, -1.0, 3.0])
def test_alpha_decays_to_0_from_any_start(start):
    """E1: the fixed point of the published rule is W/(2d), whatever the data are."""
    x = jnp.asarray(100 * RNG.laplace(size=(3, 2000)))  # of scale 100: alpha should be 2.3
    model = pipla.Model(lambda theta, x, y: jnp.sum((x - y) ** 2) / 2, CodeScale(1 / 2000), x[0])
    state = pipla.MYPGD(STEP, LAM).init(model, jnp.asarray(start), x)
    step = jax.jit(lambda state: pipla.MYPGD(STEP, LAM).step(jax.random.key(0), state, model)[0])
    for _ in range(150):
        state = step(state)
    assert abs(float(state.theta)) < 0.01


def test_a_divided_gradient_leaves_the_noise_alone():
    def smooth(theta, x, data):
        return theta**2 / 2 + jnp.sum(x**2) / 2

    model = DividedGradient(pipla.Model(smooth), 10.0)
    particles, key = jnp.ones((4, 3)), jax.random.key(1)
    state = pipla.IPLA(STEP).init(model, jnp.asarray(2.0), particles)
    theta = jax.jit(lambda state: pipla.IPLA(STEP).step(key, state, model)[0].theta)(state)
    noise = jax.random.normal(jax.random.split(key)[0], ()) * np.sqrt(2 * STEP / 4)
    assert float(theta) == pytest.approx(2.0 - STEP * 2.0 / 10 + float(noise))


def test_the_published_prox_is_a_derivative():
    x = jnp.array([-1.5, -0.9995, -0.998, 0.3, 0.998, 0.9995, 1.5])
    found = jax.vmap(jax.grad(published_hard_tanh))(x)
    np.testing.assert_array_equal(found, [0, 0, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(published_hard_tanh(x), jnp.clip(x, -1, 1))


def test_the_published_pipgla_adds_a_whole_gradient():
    term = AddedGradient(lambda x: jnp.sum(x["w"] ** 3) + jnp.sum(x["v"]), "w")
    x = {"w": jnp.array([1.0, 2.0]), "v": jnp.array([5.0])}
    for lam in (0.1, 10.0):
        found = term.prox(None, x, None, lam)[1]
        np.testing.assert_allclose(found["w"], [1 - 3, 2 - 12])
        np.testing.assert_array_equal(found["v"], x["v"])


# The splitting. #


def test_the_split_prox_minimises_the_linearised_misfit():
    labels = np.array([0, 1, 1])
    term = SplitHardTanh(labels)
    x = {"w": jnp.zeros(1), "v": jnp.asarray(3 * RNG.normal(size=(4, 2)))}
    x["u"] = jnp.asarray(2 * RNG.normal(size=(3, 4)))
    lam = {"w": 1.0, "v": 0.02, "u": 0.7}

    def misfit(a, v):
        scores = a @ v
        return jnp.sum(jax.nn.logsumexp(scores, axis=1) - scores[jnp.arange(3), labels])

    gradient = jax.jit(jax.grad(misfit, (0, 1)))
    slope, slope_v = map(np.asarray, gradient(jnp.clip(x["u"], -1, 1), x["v"]))
    _, found = jax.jit(lambda x: term.prox(None, x, None, lam))(x)
    found = {name: np.asarray(leaf) for name, leaf in found.items()}
    grid = np.linspace(-8, 8, 160_001)
    for place in np.ndindex(3, 4):
        u, g = float(x["u"][place]), float(slope[place])
        cost = g * np.clip(grid, -1, 1) + (grid - u) ** 2 / (2 * lam["u"])
        own = g * np.clip(float(found["u"][place]), -1, 1)
        own += (float(found["u"][place]) - u) ** 2 / (2 * lam["u"])
        assert own <= cost.min() + 1e-6
    np.testing.assert_allclose(found["v"], np.asarray(x["v"]) - 0.02 * slope_v)
    assert float(term.value(None, x)) == pytest.approx(
        float(misfit(jnp.clip(x["u"], -1, 1), x["v"]))
    )


def split_moments(features, labels, width):
    """E[w²], E[w d] and E[d²] of one input and unit, d = v_1 - v_0, by quadrature."""
    w, d = np.linspace(-5, 5, 201), np.linspace(-9, 9, 201)
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    density = np.exp(-0.5 * w[:, None] ** 2 - 0.25 * d**2)
    for feature, label in zip(features[:, 0], labels, strict=True):
        hidden = np.clip(w[:, None] * feature + width * nodes, -1, 1)
        side = 2 * label - 1
        each = 1 / (1 + np.exp(-side * hidden[:, :, None] * d))
        density *= np.einsum("q,wqd->wd", mass / mass.sum(), each)
    density /= density.sum()
    products = (w[:, None] ** 2 + 0 * d, w[:, None] * d, 0 * w[:, None] + d**2)
    return [float(np.sum(density * product)) for product in products]


@pytest.mark.slow
def test_the_splitting_samples_its_posterior():
    """Euler's rule with a tenth of the inverse stiffness widens variances by 5 %; the Monte-Carlo
    error of 4000 particles is below 2 %.

    15 % is five standard errors beyond the bias: a right program fails once in a million.
    """
    features, labels = np.array([[1.0], [-0.7], [2.0], [0.4]]), np.array([1, 0, 1, 1])
    particles = {
        name: jnp.asarray(RNG.normal(size=(4000, 1, size))) for name, size in (("w", 1), ("v", 2))
    }
    split = splitting.split_model(features, labels, precision=1.0)
    particles["u"] = jnp.asarray(features) @ particles["w"]
    particles["w"] = jnp.asarray(split.coordinates(np.asarray(particles["w"])))
    (scale,) = split.basis.ravel()

    def products(w, v):
        return jnp.stack([w**2, w * (v[1] - v[0]), (v[1] - v[0]) ** 2])

    result = pipla.run(
        split.model,
        pipla.PGLA(0.1),
        theta={"alpha": jnp.zeros(()), "beta": jnp.zeros(())},
        particles=particles,
        num_steps=2000,
        key=jax.random.key(0),
        check=False,
        save=pipla.Save(quantity=lambda theta, x: products(scale * x["w"][0, 0], x["v"][0])),
    )
    found = np.asarray(result.x_mean)
    expected = split_moments(features, labels, splitting.WIDTH)
    np.testing.assert_allclose(found, expected, rtol=0.15)
    assert np.all(np.abs(np.array(expected) - [1.0, 0.0, 2.0]) > 0.3)  # those of the prior


# Peers. #


@pytest.fixture(scope="module")
def kernel():
    x = {"w": jnp.asarray(RNG.normal(size=(4, 3))), "v": jnp.asarray(RNG.normal(size=(3, 2)))}
    return peers.Kernel.of(x, RNG.normal(size=(6, 4)))


def jacobian(kernel, features):
    """Of the difference of the scores, by automatic differentiation."""
    x = {name: jnp.asarray(leaf) for name, leaf in kernel.x.items()}

    def score(x, f):
        both = two_layers.scores(x, f[None])[0]
        return both[1] - both[0]

    rows = jax.vmap(jax.grad(score), in_axes=(None, 0))(x, jnp.asarray(features))
    return {name: np.asarray(leaf).reshape(len(features), -1) for name, leaf in rows.items()}


def test_the_kernel_is_that_of_the_gradients(kernel):
    rows = jacobian(kernel, kernel.features)
    for name, block in kernel.blocks.items():
        np.testing.assert_allclose(block, rows[name] @ rows[name].T, rtol=1e-8, atol=1e-10)


def test_the_laplace_approximation_is_that_of_the_whole_hessian(kernel):
    """The variance of a prediction and MacKay's update, in the space of the weights."""
    tau = {"w": 0.7, "v": 1.9}
    rows = jacobian(kernel, kernel.features)
    both = np.concatenate([rows["w"], rows["v"]], axis=1)
    prior = np.repeat([tau["w"], tau["v"]], [12, 6])
    score = kernel.score(kernel.features)
    slope = 1 / (2 + 2 * np.cosh(score))
    covariance = np.linalg.inv(np.diag(prior) + both.T @ (slope[:, None] * both))
    features = RNG.normal(size=(5, 4))
    new = np.concatenate([jacobian(kernel, features)[name] for name in ("w", "v")], axis=1)
    variance = np.einsum("ij,jk,ik->i", new, covariance, new)
    expected = 1 / (1 + np.exp(-kernel.score(features) / np.sqrt(1 + np.pi / 8 * variance)))
    np.testing.assert_allclose(kernel.predict(tau, features)[:, 1], expected, rtol=1e-8)
    left = np.diag(covariance)
    determined = {"w": 12 - 0.7 * left[:12].sum(), "v": 6 - 1.9 * left[12:].sum()}
    for name, found in kernel.updated(tau).items():
        assert found == pytest.approx(determined[name] / np.sum(kernel.x[name] ** 2))


# Rows. #


def toy_images():
    images = Images(RNG.normal(size=(8, 4)).astype(np.float32), np.arange(8, dtype=np.int32) % 2)
    return Classification("toy", ("0", "1"), images, images, images)


def test_lines_of_pruning_begin_with_the_whole_network():
    weights = {"w": RNG.normal(size=(2, 4, 3)), "v": RNG.normal(size=(2, 3, 2))}
    trained = Trained(lambda f: two_layers.probabilities(weights, f), 0.0, weights=weights)
    images = toy_images()
    lines, series = pruning.measured(trained, images)
    whole = next(line for line in lines if line["averaged"] == "after")
    assert whole["removed"] == "nothing"
    assert whole["error_large"] == measured(trained, images)["error_large"]
    assert whole["occupancy"] == 1.0
    half = next(line for line in lines if line["removed"] == "50 % of w")
    assert half["zero_w"] == pytest.approx(50, abs=100 / 12)
    assert half["zero_v"] <= 100 / 3 * 2
    assert series["occupancy after"][0] == 1.0
    assert series["error by units"][0] == whole["error_large"]
    assert pruning.measured(trained._replace(weights={}), images) == ([], {})


def test_means_over_splits_keep_each():
    lines = averaged(
        [[{"removed": "a", "error": value, "error_large": None}] for value in (1.0, 3.0)]
    )
    each = {"error": [1.0, 3.0], "error_large": [None, None]}
    assert lines == [{"removed": "a", "error": 2.0, "error_large": None, "each": each}]


def test_a_run_that_is_not_finite_has_no_errors():
    nothing = Trained(lambda f: np.full((len(f), 2), np.nan), 1.0, finite=False, theta={"alpha": 1})
    found = measured(nothing, toy_images())
    assert found["error"] is None
    assert found["lppd_large"] is None
    each = {name: [value] for name, value in found.items()}
    entry = NetworkEntry("PGD", "none", "published", lambda *a: nothing)
    row = summarised(entry, [nothing], each, [])
    assert row.finite == 0.0
    assert row.error is None


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tiny run with a published row, one without priors, and one by Adam."""
    folder = tmp_path_factory.mktemp("networks") / "mnist"
    standard = jax.numpy_dtype_promotion("standard")  # which adam needs
    with pytest.MonkeyPatch.context() as patch, standard:
        patch.delenv("PIPLA_DATA", raising=False)
        wanted = ("SOUL", "logistic regression", "Adam with early stopping")
        patch.setattr(peers, "ROUNDS", 2)
        run("bnn-mnist", "tiny", algorithms=wanted, out=folder, **QUIET)
    return folder


def test_a_run_is_read_again_and_its_page_rebuilt(finished):
    results = load(finished)
    assert [row.algorithm for row in results.rows] == [
        *("SOUL", "SOUL"),
        *("logistic regression", "Adam with early stopping"),
    ]
    assert all(0 <= row.error <= 100 and row.lppd < 0 for row in results.rows)
    assert all(row.error_large is None for row in results.rows)  # scikit-learn's digits have none
    # The deviation is that of the first layer, whose weights Adam has hardly moved from a start
    # of standard deviation 1/8; those of the last begin at .9.
    assert 0.1 < results.rows[-1].std_weights < 0.2
    # One chain, and as many of its last positions as others have particles.
    assert results.rows[0].num_particles == 1
    assert results.curve(results.rows[0], "trace").shape == (2, 4)
    page = rebuild(finished).read_text()
    assert "Error alone does not separate these methods" in page
    assert "scikit-learn" in page


@pytest.mark.slow
def test_recommended_rows_predict_as_the_trained_network(monkeypatch):
    """Their weights are turned around, inputs before outputs, and averaged here."""
    seen = []

    def keep(*args, **options):
        seen.append(quiet_train(*args, **options))
        return seen[-1]

    monkeypatch.setattr(recommended, "quiet_train", keep)
    images = toy_images()
    preset = NetworkPreset(1, train_steps=4, train_particles=2, num_units=3)
    with jax.numpy_dtype_promotion("standard"):  # which adam needs
        trained = recommended.recommended({"w": "group", "v": "laplace"}, -1.5)(images, preset, 0)
        expected = seen[0].predict_proba(images.test.features.astype(float))
    assert trained.weights["w"].shape[1:] == (4, 3)
    assert list(trained.weights) == ["w", "v"]
    np.testing.assert_allclose(trained.probabilities(images.test.features), expected, rtol=1e-6)
    assert [layer.prior for layer in seen[0].layers] == ["group", "laplace"]
    assert float(seen[0].network.theta["scales"]["layers/0"]) == -1.5
    assert set(trained.theta) == {"alpha", "beta"}


@pytest.mark.slow
def test_the_convolutional_network_is_the_papers():
    make = functools.partial(convolutional.Convolutional, 4, convolutional.WIDTHS)
    module = eqx.filter_eval_shape(make, key=jax.random.key(0))
    shapes = [layer.weight.shape for layer in module.linear]
    assert shapes == [(512, 400), (256, 512), (128, 256), (4, 128)]
    small = convolutional.Convolutional(4, (5, 4), key=jax.random.key(0))
    features = RNG.normal(size=(2, 3, 32, 32))
    network = pipla.networks.model(small, features, np.array([0, 3]))
    # The linear layers are sampled; convolutions and biases are in theta.
    assert [layer.name for layer in network.layers] == ["linear/0", "linear/1", "linear/2"]
    assert network.theta["network"].convolutions.layers[0].weight.shape == (6, 3, 5, 5)


def test_the_convolution_and_its_gradient_are_those_of_equinox():
    image = jnp.asarray(RNG.normal(size=(9, 10, 2)))
    ours = Convolution(2, 3, 3, block=4, key=jax.random.key(0))
    theirs = eqx.nn.Conv2d(2, 3, 3, key=jax.random.key(0))
    pool = eqx.nn.MaxPool2d(2, 2)
    weights = jnp.asarray(RNG.normal(size=(3, 4, 3)))

    def one(layer):
        return jnp.sum(weights * pooled(layer(image)[1:]))

    def other(layer):
        pixels = pool(layer(jnp.moveaxis(image, -1, 0))[:, 1:])
        return jnp.sum(weights * jnp.moveaxis(pixels, 0, -1))

    (value, found), (same, known) = (
        eqx.filter_value_and_grad(f)(layer) for f, layer in ((one, ours), (other, theirs))
    )
    np.testing.assert_allclose(value, same, rtol=1e-12)
    np.testing.assert_allclose(found.weight, known.weight, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.bias, known.bias.ravel(), rtol=1e-10)
    with pytest.raises(ValueError, match="block must divide the 8 columns of the output, got 3"):
        Convolution(2, 3, 3, block=3, key=jax.random.key(0))(image)


def test_convolutions_are_those_with_the_most_probable_images_held_out(monkeypatch):
    densities = iter([-3.0, -1.0, -2.0, -1.5, -1.2])

    class Network:
        noncentred = types.SimpleNamespace(back=lambda theta, z: z)

        def log_predictive_density(self, theta, weights, features, labels):
            return next(densities)

    watching = convolutional.Watching(Network(), Images(np.zeros(1), np.zeros(1)), every=10)
    monkeypatch.setattr(watching, "is_due", lambda view: view.step % 10 == 0)
    views = [types.SimpleNamespace(step=s, theta=s, particles=np.zeros(2)) for s in range(5, 60, 5)]
    said = [watching(view) for view in views if view.step <= 50]
    assert said[:-1] == [None] * (len(said) - 1)
    assert "less probable" in said[-1]  # 10, 20, then three times worse
    assert watching.best == 20


def test_the_settings_of_a_run_are_found_again(tmp_path, monkeypatch):
    """Or it could not be resumed."""
    monkeypatch.setenv("PIPLA_DATA", str(tmp_path))
    arrays = {}
    for part in ("train", "test"):
        arrays[f"x_{part}"] = RNG.integers(0, 256, (40, 32, 32, 3)).astype(np.uint8)
        arrays[f"y_{part}"] = np.array([0, 1, 8, 9] * 10)
    np.savez(tmp_path / "cifar10_vehicles.npz", **arrays)
    for name in ("bnn-cifar10", "bnn-pruning"):
        preset = find(name).presets["tiny"]
        _, noted = find(name).prepare(preset, 0)
        settings = {**dataclasses.asdict(preset), **noted}
        assert json.loads(json.dumps(settings)) == settings
        assert " images" in settings["data"]


def test_missing_vehicles_are_one_line(tmp_path, monkeypatch):
    from pipla_lab.data import downloads

    monkeypatch.setenv("PIPLA_DATA", str(tmp_path))
    monkeypatch.setattr(downloads, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr("pooch.retrieve", lambda *a, **k: (_ for _ in ()).throw(OSError("down")))
    words = ["experiment", "run", "bnn-cifar10", "--preset", "tiny", "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "cifar10_vehicles.npz is neither" in result.stderr
    np.savez(tmp_path / "cifar10_vehicles.npz", x_train=np.zeros((3, 8, 8, 3)), y_train=np.zeros(3))
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "(images, 32, 32, 3)" in result.stderr
