"""Networks as models: what is latent, what is learned, what is refused; and what they predict."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import networks

KEY = jax.random.key(0)


class Network(eqx.Module):
    """tanh between two linear layers, with a normalisation."""

    layers: list[eqx.nn.Linear]
    norm: eqx.nn.LayerNorm
    steps: int

    def __init__(self, outputs=3):
        first, second = jax.random.split(KEY)
        self.layers = [
            eqx.nn.Linear(4, 5, use_bias=False, key=first),
            eqx.nn.Linear(5, outputs, key=second),
        ]
        self.norm = eqx.nn.LayerNorm(5)
        self.steps = 1

    def __call__(self, x):
        return self.layers[1](self.norm(jnp.tanh(self.layers[0](x))))


RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((20, 4))
LABELS = RNG.integers(3, size=20)


def log_softmax(scores):
    return scores - np.log(np.sum(np.exp(scores), axis=-1, keepdims=True))


def by_hand(module, weights):
    """The scores of `Network` in NumPy, for every row."""
    hidden = np.tanh(FEATURES @ np.asarray(weights["layers/0"]).T)
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    normed = centred / np.sqrt(hidden.var(axis=1, keepdims=True) + module.norm.eps)
    bias = np.asarray(module.layers[1].bias)
    return normed @ np.asarray(weights["layers/1"]).T + bias


@pytest.fixture(scope="module")
def network():
    return networks.model(Network(), FEATURES, LABELS)


def test_the_potential_is_the_likelihood_and_the_priors(network):
    particles = network.particles(2, KEY)
    x = jax.tree.map(lambda leaf: leaf[1], particles)
    expected = -np.sum(log_softmax(by_hand(Network(), x))[np.arange(20), LABELS])
    assert float(network.model.smooth_value(network.theta, x)) == pytest.approx(expected)
    prior = 0.0
    for name, alpha in network.theta["scales"].items():
        scale, weights = np.exp(2 * float(alpha)), np.asarray(x[name])
        prior += np.sum(np.abs(weights)) / scale + weights.size * np.log(scale)
    potential = float(network.model.potential(network.theta, x))
    assert potential == pytest.approx(expected + prior)


def test_what_is_not_latent_is_a_part_of_theta(network):
    inner = network.theta["network"]
    assert inner.layers[0].weight is None
    assert inner.layers[1].weight is None
    assert inner.layers[1].bias.shape == (3,)
    assert inner.norm.weight.shape == (5,)
    assert set(network.theta) == {"network", "scales"}


def test_modules_are_the_network_again(network):
    x = jax.tree.map(lambda leaf: leaf[0], network.particles(1, KEY))
    module = network.modules(network.theta, x)
    assert isinstance(module, Network)
    assert module.steps == 1
    scores = jax.vmap(module)(jnp.asarray(FEATURES))
    np.testing.assert_allclose(scores, by_hand(Network(), x), rtol=1e-9)


def test_particles_start_at_the_scale_of_their_fan_in():
    module = eqx.nn.MLP(200, 2, 100, 1, key=KEY)
    network = networks.model(module, np.zeros((3, 200)), [0, 1, 1])
    for name, fan_in in (("layers/0", 200), ("layers/1", 100)):
        weights = np.asarray(network.particles(20, KEY)[name])
        # 4000 Laplace numbers or more: the standard deviation is right within 2 %, so 5 sigma.
        assert np.std(weights) * np.sqrt(fan_in) == pytest.approx(1, rel=0.1)


def test_predictions_are_averages_over_the_particles_in_blocks_of_any_size(network, monkeypatch):
    particles = network.particles(6, KEY)
    each = [
        log_softmax(by_hand(Network(), jax.tree.map(lambda w, i=i: w[i], particles)))
        for i in range(6)
    ]
    mean = np.mean(np.exp(each), axis=0)
    np.testing.assert_allclose(network.predict(network.theta, particles, FEATURES), mean)
    monkeypatch.setattr("pipla.networks.modelling.LARGEST_BLOCK", 48)  # rows by 8, 8 and 4
    np.testing.assert_allclose(network.predict(network.theta, particles, FEATURES), mean)
    density = network.log_predictive_density(network.theta, particles, FEATURES, LABELS)
    assert density == pytest.approx(np.mean(np.log(mean[np.arange(20), LABELS])))
    error = network.error(network.theta, particles, FEATURES, LABELS)
    assert error == pytest.approx(np.mean(mean.argmax(axis=1) != LABELS))
    draws = network.draws(network.theta, particles, FEATURES)
    np.testing.assert_allclose(draws, np.exp(each))


def test_batches_of_rows_add_up_to_the_likelihood(network):
    x = jax.tree.map(lambda leaf: leaf[0], network.particles(1, KEY))
    likelihood = network.likelihood
    halves = [likelihood.rows(jnp.arange(10) + start)(network.theta, x) for start in (0, 10)]
    assert float(sum(halves)) == pytest.approx(float(likelihood(network.theta, x)))
    assert likelihood.num_rows() == 20


def test_the_noncentred_form_is_the_same_model(network):
    particles = network.particles(2, KEY)
    form = network.noncentred
    z = form.start(network.theta, particles)
    back = jax.vmap(form.back, in_axes=(None, 0))(network.theta, z)
    np.testing.assert_allclose(back["layers/0"], particles["layers/0"])
    one = jax.tree.map(lambda leaf: leaf[0], (z, particles))
    same = network.model.smooth_value(network.theta, one[1])
    assert float(form.model.smooth_value(network.theta, one[0])) == pytest.approx(float(same))


def test_the_noncentred_form_may_first_be_asked_for_inside_a_program():
    """It is kept, and must not hold what belongs to that program."""
    module = eqx.nn.MLP(2, 2, 3, 1, key=KEY)
    network = networks.model(module, np.eye(4, 2), np.arange(4) % 2)
    z = network.particles(1, KEY)
    jax.eval_shape(lambda theta: network.noncentred.start(theta, z), network.theta)
    network.noncentred.start(network.theta, z)


@pytest.mark.parametrize(
    ("prior", "density"),
    [
        ("normal", lambda x, s: np.sum(x**2) / (2 * s**2) + x.size * np.log(s)),
        # A group of k has |x| sqrt((k + 1)/2)/s, and the normaliser s^k.
        (
            "group",
            lambda x, s: np.sum(np.linalg.norm(x, axis=1)) * np.sqrt(2.5) / s + x.size * np.log(s),
        ),
        (
            "group-inputs",
            lambda x, s: np.sum(np.linalg.norm(x, axis=0)) * np.sqrt(3) / s + x.size * np.log(s),
        ),
    ],
)
def test_priors(prior, density):
    network = networks.model(Network(), FEATURES, LABELS, layers={("layers", 0): prior})
    assert [(layer.name, layer.prior) for layer in network.layers] == [("layers/0", prior)]
    x = jax.tree.map(lambda leaf: leaf[0], network.particles(1, KEY))
    theta = network.theta | {"scales": {"layers/0": jnp.asarray(-0.3)}}
    found = network.model.nonsmooth.value(theta, x)
    assert float(found) == pytest.approx(density(np.asarray(x["layers/0"]), np.exp(-0.6)))


def test_an_element_of_a_group_has_the_variance_of_a_laplace_variable():
    """Draws of the group density in 3 dimensions: a gamma radius on a sphere."""
    layer = networks.model(
        eqx.nn.Linear(3, 2, key=KEY), np.zeros((2, 3)), [0, 1], layers={"weight": "group"}
    ).layers[0]
    rng = np.random.default_rng(0)
    weight = float(layer.term().regulariser.weight)
    directions = rng.standard_normal((100_000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    x = directions * rng.gamma(3, 1 / weight, size=(100_000, 1))
    # The error of a variance from 300 000 numbers is below .5 %: 4 sigma and more.
    assert np.var(x) == pytest.approx(2.0, rel=0.02)


def test_layers_are_named_by_path_tuple_or_list():
    for layers in (["layers/1"], [("layers", 1)], ["layers/1/weight"]):
        network = networks.model(Network(), FEATURES, LABELS, layers=layers)
        assert network.layers[0].path == ("layers", 1, "weight")
    network = networks.model(Network(), FEATURES, LABELS, layers={"layers/1/bias": "normal"})
    assert network.layers[0].shape == (3,)


def test_regression_has_noise_and_poisson_rates():
    numbers = RNG.standard_normal(20)
    network = networks.model(Network(1), FEATURES, numbers, family="regression")
    x = jax.tree.map(lambda leaf: leaf[0], network.particles(1, KEY))
    assert float(network.theta["noise"]) == pytest.approx(np.log(numbers.std()))
    scores = by_hand(Network(1), x)[:, 0]
    sigma = np.exp(float(network.theta["noise"]))
    densities = -0.5 * ((numbers - scores) / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi))
    assert float(network.model.smooth_value(network.theta, x)) == pytest.approx(-densities.sum())
    particles = jax.tree.map(lambda leaf: leaf[None], x)
    assert network.log_predictive_density(
        network.theta, particles, FEATURES, numbers
    ) == pytest.approx(densities.mean())
    assert network.error(network.theta, particles, FEATURES, numbers) == pytest.approx(
        np.sqrt(np.mean((scores - numbers) ** 2))
    )
    counts = RNG.poisson(2.0, size=20)
    network = networks.model(Network(1), FEATURES, counts, family="poisson")
    from scipy.stats import poisson

    expected = -np.sum(poisson.logpmf(counts, np.exp(scores)))
    assert float(network.model.smooth_value(network.theta, x)) == pytest.approx(expected)


def test_one_score_is_a_logistic_regression_of_two_classes():
    network = networks.model(Network(1), FEATURES, LABELS % 2)
    particles = network.particles(1, KEY)
    x = jax.tree.map(lambda leaf: leaf[0], particles)
    score = by_hand(Network(1), x)[:, 0]
    probability = 1 / (1 + np.exp(-score))
    found = network.predict(network.theta, particles, FEATURES)
    np.testing.assert_allclose(found, np.stack([1 - probability, probability], axis=1))
    expected = -np.sum(np.log(np.where(LABELS % 2, probability, 1 - probability)))
    assert float(network.model.smooth_value(network.theta, x)) == pytest.approx(expected)


def test_a_loss_of_your_own():
    network = networks.model(
        Network(1), FEATURES, np.zeros(20), loss=lambda scores, label: jnp.abs(scores[0] - label)
    )
    particles = network.particles(1, KEY)
    x = jax.tree.map(lambda leaf: leaf[0], particles)
    expected = np.sum(np.abs(by_hand(Network(1), x)))
    assert float(network.model.smooth_value(network.theta, x)) == pytest.approx(expected)
    with pytest.raises(TypeError, match="error is not defined for a loss of your own"):
        network.error(network.theta, particles, FEATURES, np.zeros(20))


def test_single_precision_stays_single():
    module = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), eqx.nn.Linear(4, 3, key=KEY))
    network = networks.model(module, FEATURES, LABELS, layers=["weight"])
    for leaf in jax.tree.leaves((network.theta, network.particles(2, KEY))):
        assert leaf.dtype == jnp.float32
    assert network.predict(network.theta, network.particles(2, KEY), FEATURES).dtype == np.float32


NAN = np.where(np.arange(20)[:, None] == 3, np.nan, FEATURES)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"layers": {"layers/2": "laplace"}}, ValueError, "'layers/2', but layers has no '2'"),
        ({"layers": {"layers/0": "horseshoe"}}, ValueError, "got 'horseshoe'"),
        ({"layers": {}}, ValueError, "at least one layer"),
        ({"layers": 3.5}, TypeError, "layers must be None, a mapping"),
        ({"layers": ["norm/eps"]}, ValueError, "neither an array of floats nor a layer"),
        ({"layers": ["layers/0", "layers/0/weight"]}, ValueError, "twice"),
        ({"layers": {"layers/1/bias": "group"}}, ValueError, "at least two axes"),
        ({"prior": "lasso"}, ValueError, "prior must be one of"),
        ({"layers": {"layers/0": np.ones(2)}}, ValueError, "layers['layers/0'] must be one of"),
        ({"family": "survival"}, ValueError, "family must be one of"),
        ({"loss": 3}, TypeError, "loss must be a function"),
        ({"labels": LABELS + 1}, ValueError, "labels must be a vector of integers from 0 to 2"),
        ({"labels": LABELS - 0.5}, ValueError, "integers from 0 to 2"),
        ({"labels": LABELS[:-1]}, ValueError, "each of the 20 observations in features, got 19"),
        ({"labels": np.where(LABELS == 1, np.nan, 0)}, ValueError, "integers from 0 to 2"),
        ({"features": FEATURES[:, :3]}, ValueError, "module failed on the features of one"),
        ({"features": NAN}, ValueError, "features has 4 non-finite"),
        ({"features": "text"}, TypeError, "features must be an array of numbers"),
        ({"features": 1.0}, ValueError, "leading axis that counts the observations"),
        ({"module": 3}, TypeError, "module must be callable"),
        ({"module": jnp.tanh}, ValueError, "has none; name its layers by path"),
        ({"family": "regression"}, ValueError, "labels must have shape (observations, 3)"),
    ],
)
def test_bad_input_is_refused_before_anything_is_compiled(change, error, says):
    given = {"module": Network(), "features": FEATURES, "labels": LABELS} | change
    first = [given.pop(name) for name in ("module", "features", "labels")]
    with pytest.raises(error) as caught:
        networks.model(*first, **given)
    assert says in str(caught.value)


def test_new_features_must_be_of_the_same_kind(network):
    particles = network.particles(2, KEY)
    with pytest.raises(ValueError, match=r"shape \(observations, 4\)"):
        network.predict(network.theta, particles, FEATURES[:, :2])
    with pytest.raises(ValueError, match="non-finite"):
        network.predict(network.theta, particles, NAN)
    with pytest.raises(ValueError, match="integers from 0 to 2"):
        network.error(network.theta, particles, FEATURES, LABELS + 5)


def test_any_algorithm_of_the_library_runs_on_it(network):
    particles = network.particles(2, KEY)
    algorithm = pipla.Minibatch(pipla.PIPGLA(1e-4, theta_scale=0.01), size=5)
    result = pipla.run(
        network.model, algorithm, theta=network.theta, particles=particles, num_steps=4, key=KEY,
        check=False,
    )  # fmt: skip
    assert result.status in (pipla.Status.COMPLETED, pipla.Status.UNRELIABLE)
    assert result.particles["layers/0"].shape == (2, 5, 4)
