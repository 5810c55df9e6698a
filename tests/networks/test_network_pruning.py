"""Pruned networks: exactly the weights that were asked for, and the same function when smaller."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pipla import networks
from pipla.networks._families import FAMILIES
from pipla.networks._ranking import scores_of
from pipla.networks.pruning import pruned

KEY = jax.random.key(0)
FEATURES = np.random.default_rng(0).standard_normal((12, 4))


def made(use_bias=True, activation=jax.nn.sigmoid, draws=4):
    """A network 4-6-5-3 and random weights; the activation is not 0 at 0."""
    module = eqx.nn.MLP(
        4, 3, 6, 2, activation=activation, use_bias=use_bias, use_final_bias=use_bias, key=KEY
    )
    network = networks.model(module, FEATURES, np.arange(12) % 3)
    return network, jax.tree.map(np.asarray, network.particles(draws, KEY))


OPTIONS = {
    "num_particles": 2,
    "fraction": None,
    "threshold": None,
    "units": None,
    "average": "after",
    "criterion": "magnitude",
    "chain": None,
    "seen": None,
}


def prune(network, particles, **options):
    return pruned(network, network.theta, particles, **(OPTIONS | options))


@pytest.fixture(scope="module")
def whole():
    return made()


def test_a_fraction_of_all_weights_of_every_draw_goes(whole):
    found = prune(*whole, fraction=0.75)
    total = 6 * 4 + 6 * 6 + 3 * 6
    for draw in range(4):
        masks = [mask[draw] for mask in found.masks.values()]
        assert sum(np.sum(~mask) for mask in masks) == round(0.75 * total)
        kept = np.concatenate([np.abs(w[draw])[m[draw]] for w, m in both(whole[1], found.masks)])
        gone = np.concatenate([np.abs(w[draw])[~m[draw]] for w, m in both(whole[1], found.masks)])
        assert kept.min() > gone.max()
    for name, weights in found.particles.items():
        np.testing.assert_array_equal(weights, np.where(found.masks[name], whole[1][name], 0))
    assert found.pruned == pytest.approx(round(0.75 * total) / total)
    assert prune(*whole, fraction=0.0).pruned == 0


def both(first, second):
    return [(first[name], second[name]) for name in first]


def test_thresholds_by_number_and_by_layer(whole):
    found = prune(*whole, threshold=0.3)
    for name, weights in whole[1].items():
        assert found.sparsity[name] == pytest.approx(np.mean(np.abs(weights) < 0.3))
    limits = dict.fromkeys(whole[1], 0.0) | {"layers/0": 10.0}
    with pytest.warns(networks.PruningWarning, match="no weight of 'layers/0' is left in 4 of 4"):
        found = prune(*whole, threshold=limits)
    assert len(found.findings) == 1
    assert found.sparsity == {"layers/0": 1.0, "layers/1": 0.0, "layers/2": 0.0}


def test_a_limit_for_all_layers_by_magnitude_would_empty_the_layer_of_small_scale():
    """As in trained networks: the first layer small, the last one large, the product what counts."""
    module = eqx.nn.MLP(4, 3, 6, 1, activation=jnp.tanh, key=KEY)
    network = networks.model(module, FEATURES, np.arange(12) % 3)
    particles = jax.tree.map(np.asarray, network.particles(2, KEY))
    particles = {"layers/0": 0.02 * particles["layers/0"], "layers/1": 50 * particles["layers/1"]}
    likelihood = network.likelihood
    with pytest.warns(networks.PruningWarning) as said:
        found = prune(network, particles, fraction=0.6, seen=likelihood)
    assert found.sparsity["layers/0"] == 1.0
    assert "no weight of 'layers/0' is left in 2 of 2 draws" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", networks.PruningWarning)  # weights at random: all count
        kept = prune(network, particles, fraction=0.6, criterion=None, seen=likelihood)
    assert max(kept.sparsity.values()) < 0.9
    assert kept.loss_after < found.loss_after


def test_sensitivities_are_what_scores_lose_to_first_order():
    network, particles = made(draws=2)
    found = scores_of(
        "sensitivity", particles, theta=network.theta, seen=network.likelihood, chain=()
    )

    def scores(x):
        return jax.vmap(network.modules(network.theta, x))(jnp.asarray(FEATURES))

    x = {name: jnp.asarray(weights[1]) for name, weights in particles.items()}
    derivatives = jax.jacobian(scores)(x)
    ratios = []
    for name, weights in particles.items():
        squares = jnp.sum(derivatives[name] ** 2, axis=(0, 1)) / len(FEATURES)
        exact = np.abs(weights[1]) * np.sqrt(squares)
        ratios.append((found[name][1] / exact).ravel())
    # Of twelve observations with signs at random; equal but for those.
    assert 0.9 < np.exp(np.mean(np.log(np.concatenate(ratios)))) < 1.05
    one = networks.model(
        eqx.nn.MLP(4, 1, 6, 1, key=KEY), FEATURES, FEATURES[:, 0], family="regression"
    )
    particles = jax.tree.map(np.asarray, one.particles(1, KEY))
    found = scores_of("sensitivity", particles, theta=one.theta, seen=one.likelihood, chain=())
    x = {name: jnp.asarray(weights[0]) for name, weights in particles.items()}
    derivatives = jax.jacobian(
        lambda x: jax.vmap(one.modules(one.theta, x))(jnp.asarray(FEATURES))
    )(x)
    for name, weights in particles.items():  # a single score has no signs to speak of
        squares = jnp.mean(derivatives[name][:, 0] ** 2, axis=0)
        np.testing.assert_allclose(found[name][0], np.abs(weights[0]) * np.sqrt(squares), rtol=1e-9)


def test_the_loss_before_and_after_is_part_of_the_answer_and_said_where_it_is_much():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((50, 4))
    labels = features[:, 0] + 0.1 * rng.standard_normal(50)
    linear = eqx.nn.Linear(4, "scalar", use_bias=False, key=KEY)
    network = networks.model(Whole(linear), features, labels, family="regression")
    theta = network.theta | {"noise": jnp.asarray(np.log(0.1))}
    particles = {"linear": np.asarray([[[1.0, 0.03, -0.01, 0.0]]])}
    options = OPTIONS | {"criterion": None, "seen": network.likelihood}

    found = pruned(network, theta, particles, **(options | {"fraction": 0.5}))
    assert found.findings == ()
    expected = -network.log_predictive_density(theta, particles, features, labels)
    assert found.loss_before == pytest.approx(expected)
    kept = [particles["linear"][0, 0], [1, 0.03, 0, 0]]
    squares = [np.mean((labels - features @ w) ** 2) for w in kept]
    assert found.loss_after - found.loss_before == pytest.approx((squares[1] - squares[0]) / 0.02)
    alone = scipy.stats.norm(labels.mean(), labels.std())
    assert found.loss_without == pytest.approx(-np.mean(alone.logpdf(labels)))
    with pytest.warns(networks.PruningWarning) as said:
        gone = pruned(network, theta, particles, **(options | {"threshold": 2.0}))
    assert [str(each.message)[:30] for each in said] == [
        "no weight of 'linear' is left:",
        "pruning lost all the network e",
    ]
    assert gone.lost > 1  # worse than a constant: the noise is that of the whole network
    assert "is lost" in repr(gone)


@pytest.mark.parametrize("family", ["classification", "poisson"])
def test_what_a_constant_explains(family):
    labels = np.asarray([0, 1, 1, 2, 4 if family == "poisson" else 2])
    found = FAMILIES[family]().constant_loss(labels)
    if family == "poisson":
        exact = -np.mean(scipy.stats.poisson(1.6).logpmf(labels))
    else:
        exact = scipy.stats.entropy([0.2, 0.4, 0.4])
    assert found == pytest.approx(exact)


class Whole(eqx.Module):
    linear: eqx.nn.Linear

    def __call__(self, x):
        return self.linear(x)


def test_a_network_without_its_observations_needs_some(whole):
    with pytest.raises(ValueError, match="features and labels .* must be given"):
        prune(*whole, fraction=0.5, criterion=None)
    with pytest.raises(ValueError, match="must be given: average='particle'"):
        prune(*whole, fraction=0.5, average="particle")
    assert prune(*whole, fraction=0.5).lost is None


def test_paths_count_what_leaves_a_unit(whole):
    found = prune(*whole, fraction=0.5, criterion="path")
    first, second = whole[1]["layers/0"][0], whole[1]["layers/1"][0]
    scores = np.abs(first) * np.sqrt(np.sum(second**2, axis=0))[:, None]
    mask = found.masks["layers/0"][0]
    assert scores[mask].min() > scores[~mask].max()


@pytest.mark.parametrize(("use_bias", "fraction"), [(True, 0.8), (True, 0.97), (False, 0.8)])
def test_the_smaller_module_is_the_same_function(use_bias, fraction):
    network, particles = made(use_bias)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", networks.PruningWarning)  # at 97 % a layer is empty
        found = prune(network, particles, fraction=fraction)
    sizes = []
    for draw in range(found.num_draws):
        small = found.module(draw)
        large = network.modules(
            network.theta, {name: jnp.asarray(w[draw]) for name, w in found.particles.items()}
        )
        expected = jax.vmap(large)(jnp.asarray(FEATURES))
        np.testing.assert_allclose(jax.vmap(small)(jnp.asarray(FEATURES)), expected, atol=1e-12)
        weights = found.weights(draw)
        dead = {name: one[draw] for name, one in found.dead_units.items()}
        shapes = [weights[f"layers/{i}/weight"].shape for i in range(3)]
        first, second = (6 - np.sum(dead[f"layers/{i}"]) for i in range(2))
        assert shapes == [(first, 4), (second, first), (3, second)]
        assert small.layers[0].out_features == small.layers[1].in_features == first
        sizes.append(sum(rows * columns for rows, columns in shapes))
    assert found.occupancy == pytest.approx(np.mean(sizes) / (24 + 36 + 18))
    assert found.occupancy < 0.9
    assert "dead" in repr(found)


def test_units_are_removed_by_what_enters_and_leaves_them(whole):
    found = prune(*whole, units=0.5)
    for draw in range(4):
        entering = np.linalg.norm(whole[1]["layers/0"][draw], axis=1)
        leaving = np.linalg.norm(whole[1]["layers/1"][draw], axis=0)
        worst = np.argsort(entering * leaving)[:3]
        assert set(np.flatnonzero(found.dead_units["layers/0"][draw])) == set(worst)
    assert found.occupancy == pytest.approx((3 * 4 + 3 * 3 + 3 * 3) / (24 + 36 + 18))


def test_averages_before_and_of_one_particle(whole):
    network, particles = whole
    before = prune(network, particles, fraction=0.0, average="before")
    np.testing.assert_allclose(before.particles["layers/0"][0], particles["layers/0"].mean(axis=0))
    one = prune(network, particles, fraction=0.0, average="particle", seen=network.likelihood)
    means = [particles["layers/0"][start::2].mean(axis=0) for start in range(2)]
    assert any(np.allclose(one.particles["layers/0"][0], mean) for mean in means)
    assert before.num_draws == one.num_draws == 1


def test_predictions_of_pruned_draws_are_averaged(whole):
    network, particles = whole
    found = prune(network, particles, fraction=0.5)
    each = [
        jax.nn.softmax(jax.vmap(found.module(draw))(jnp.asarray(FEATURES)), axis=-1)
        for draw in range(4)
    ]
    mean = np.mean(each, axis=0)
    np.testing.assert_allclose(found.predict_proba(FEATURES), mean)
    labels = np.arange(12) % 3
    assert found.error(FEATURES, labels) == pytest.approx(np.mean(mean.argmax(1) != labels))
    np.testing.assert_array_equal(found.predict(FEATURES), mean.argmax(axis=1))


class Pair(eqx.Module):
    """Not an MLP: which layers follow one another must be said."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.first = eqx.nn.Linear(4, 6, use_bias=False, key=one)
        self.second = eqx.nn.Linear(6, 3, use_bias=False, key=two)

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


def test_other_modules_need_a_chain():
    network = networks.model(Pair(), FEATURES, np.arange(12) % 3)
    particles = jax.tree.map(np.asarray, network.particles(2, KEY))
    assert prune(network, particles, fraction=0.5).dead_units == {}
    with pytest.raises(ValueError, match="units needs layers that follow one another"):
        prune(network, particles, units=0.5)
    with pytest.raises(ValueError, match="no latent layer 'third'"):
        prune(network, particles, units=0.5, chain=["first", "third"])
    with pytest.raises(ValueError, match="cannot follow"):
        prune(network, particles, units=0.5, chain=["second", "first"])
    found = prune(network, particles, units=0.5, chain=["first", "second"])
    assert found.module().first.weight.shape == (3, 4)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({}, ValueError, "exactly one of fraction, threshold and units"),
        ({"fraction": 0.5, "units": 0.5}, ValueError, "exactly one of"),
        ({"fraction": 1.0}, ValueError, "fraction must be at least 0 and below 1, got 1"),
        ({"fraction": "most"}, TypeError, "fraction must be a number"),
        ({"threshold": {"layers/0": 1.0}}, ValueError, "one for each layer"),
        ({"fraction": 0.5, "average": "never"}, ValueError, "average must be one of"),
        ({"fraction": 0.5, "criterion": "luck"}, ValueError, "criterion must be one of"),
    ],
)
def test_what_is_refused(whole, options, error, says):
    with pytest.raises(error, match=says):
        prune(*whole, **options)
