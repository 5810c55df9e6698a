"""Training: scales, noise and weights against quadrature and closed forms; what it warns of."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import pipla
from pipla import networks
from pipla.algorithms.kinetic import _braked
from pipla.networks import _explained, _settling
from pipla.networks.trained import _thinned
from pipla.networks.training import _even, rule

KEY = jax.random.key(0)


class Tiny(eqx.Module):
    """Four weights: 2 tanh(w1 x) - 2 tanh(w2 x)."""

    layer: eqx.nn.Linear

    def __init__(self):
        self.layer = eqx.nn.Linear(2, 2, use_bias=False, key=KEY)

    def __call__(self, x):
        hidden = jnp.tanh(self.layer(x))
        return 2.0 * hidden[0] - 2.0 * hidden[1]


def tiny_data():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((40, 2))
    scores = 2 * np.tanh(features @ [1.5, 0.2]) - 2 * np.tanh(features @ [-0.3, -1.0])
    return features, (rng.uniform(size=40) < 1 / (1 + np.exp(-scores))).astype(int)


def penalised_maximum(features, labels, centre, reach=9.0, num=30):
    """The best log scale of `Tiny` by quadrature over all four weights."""
    grid = (np.arange(num) + 0.5) / num * 2 * reach - reach
    one, two = np.meshgrid(grid, grid, indexing="ij")
    pairs = np.stack([one.ravel(), two.ravel()], axis=1)
    units = 2 * np.tanh(pairs @ features.T)
    sizes = np.abs(pairs).sum(axis=1)
    signs = 2.0 * labels - 1
    alphas = np.linspace(-0.3, 0.4, 15)
    totals = np.full((len(alphas), len(pairs)), -np.inf)
    for i, unit in enumerate(units):
        likelihood = -np.logaddexp(0, -(unit - units) * signs).sum(axis=1)
        for k, alpha in enumerate(alphas):
            value = likelihood - np.exp(-2 * alpha) * (sizes + sizes[i])
            totals[k, i] = np.logaddexp.reduce(value)
    marginal = np.logaddexp.reduce(totals, axis=1) - 8 * alphas
    curve = np.polynomial.Polynomial.fit(alphas, marginal - (alphas - centre) ** 2 / 2, 5)
    fine = np.linspace(-0.3, 0.4, 701)
    return fine[np.argmax(curve(fine))]


def started(network, shift):
    """The network with its scales somewhere else."""
    scales = {name: alpha + shift for name, alpha in network.theta["scales"].items()}
    return dataclasses.replace(network, theta=network.theta | {"scales": scales})


@pytest.mark.slow
def test_the_scale_of_a_tiny_network_is_that_of_quadrature():
    """The Monte-Carlo error is .006, the bias of steps and ten particles .03: .07 never fails."""
    features, labels = tiny_data()
    network = networks.model(Tiny(), features, labels)
    truth = penalised_maximum(features, labels, network.layers[0].first_scale())
    found = [
        networks.train(started(network, shift), key=KEY).scales["layer"] for shift in (-1.0, 1.0)
    ]
    assert found == pytest.approx([truth, truth], abs=0.07)
    assert found[0] == pytest.approx(found[1], abs=0.01)


# How long a run lasts. #


def wandering(num, sd, seed=0):
    """A stationary series with a correlation time of 19 steps."""
    rng = np.random.default_rng(seed)
    noise, values = rng.standard_normal(num + 200), np.zeros(num + 200)
    for i in range(1, len(values)):
        values[i] = 0.9 * values[i - 1] + np.sqrt(1 - 0.81) * noise[i]
    return sd * values[200:]


def seen_after(step, trace, moves=True):
    """What a hook sees: this trace of a scale, and ten particles, new ones or always the same."""
    rng = np.random.default_rng(step if moves else 0)
    return SimpleNamespace(
        step=step,
        num_steps=10_000,
        theta={"scales": {"w": trace[step - 1]}},
        theta_trace={"scales": {"w": trace[:step]}},
        particles={"w": rng.standard_normal((10, 4, 3))},
    )


def test_a_run_lasts_until_its_scales_are_known():
    """An sd of .2 needs 19 (.2/.025)² = 1216 steps after burn-in, 1621 in all."""
    trace, stop = wandering(10_000, 0.2), _settling.Settled(800)
    ended = next(step for step in range(100, 10_001, 100) if stop(seen_after(step, trace)))
    assert 1000 < ended < 3300  # the error is itself an estimate, and rather too large
    assert "Monte-Carlo error of 0.02" in stop.reason
    assert stop(seen_after(700, 0 * trace)) is None  # before the least number of steps
    assert stop(seen_after(850, 0 * trace)) is None  # not one of its steps


def test_a_run_does_not_end_while_particles_stay_where_they_are():
    """A scale that does not move is known, or that of weights which do not move either."""
    still = wandering(4000, 0.001)
    for moves in (True, False):
        stop = _settling.Settled(2000)
        ended = [stop(seen_after(step, still, moves)) for step in range(250, 4001, 250)]
        assert [reason is None for reason in ended[:7]] == [True] * 7
        assert (ended[7] is not None) == moves
        assert (ended[-1] is not None) == moves


def test_a_run_does_not_end_while_a_scale_moves():
    still = wandering(4000, 0.001)
    moving = still + np.linspace(0, 0.4, 4000)
    assert _settling.Settled(2000)(seen_after(4000, moving)) is None
    assert _settling.Settled(2000)(seen_after(4000, still)) is not None
    assert _settling.findings_of({"scales": {"w": still}}, 1000) == ()
    (said,) = map(str, _settling.findings_of({"scales": {"w": moving}}, 1000))
    assert said.startswith("the scale of 'w' was still moving")
    short = np.linspace(0, 0.3, 20)  # too short for chance to be judged
    assert len(_settling.findings_of({"scales": {"w": short}}, 0)) == 1
    assert _settling.findings_of({"scales": {"w": 0.1 * short}}, 0) == ()


def test_a_run_of_its_own_length_says_why_it_ended(linear):
    """The scale of the linear network wanders so little that the least number will do."""
    _, _, trained = linear
    left = networks.train(trained.network, key=KEY)
    assert left.status is pipla.Status.COMPLETED
    assert (left.result.num_steps, left.result.burn_in) == (4000, 1000)
    assert "are known to a Monte-Carlo error of" in left.result.message
    assert left.scales_mcse["weight"] <= _settling.TOLERANCE
    assert left.particles["weight"].shape == (200, 1, 30)
    stopped = networks.train(trained.network, key=KEY, callbacks=[lambda view: "enough"])
    assert stopped.status is pipla.Status.STOPPED


def test_a_run_that_ends_without_knowing_its_scales_says_so(linear, monkeypatch):
    _, _, trained = linear
    monkeypatch.setattr(_settling, "TOLERANCE", 1e-6)
    monkeypatch.setattr("pipla.networks.training.LEAST", 400)
    monkeypatch.setattr("pipla.networks.training.MOST", 800)
    with pytest.warns(
        pipla.ConvergenceWarning, match="'weight' has a Monte-Carlo error of .* 1e-06"
    ):
        left = networks.train(trained.network, key=KEY)
    assert left.result.num_steps == 800
    assert left.status is pipla.Status.UNRELIABLE


def test_scales_that_are_not_known_are_named_where_the_run_is_unreliable_too(linear, monkeypatch):
    """Wandering scales make a run say so of theta; they were then not looked at any further."""

    def unreliable(*arguments, **options):
        result = pipla.run(*arguments, **options)
        return dataclasses.replace(result, status=pipla.Status.UNRELIABLE)

    _, _, trained = linear
    monkeypatch.setattr(_settling, "TOLERANCE", 1e-6)
    monkeypatch.setattr("pipla.networks.training.run", unreliable)
    monkeypatch.setattr("pipla.networks.training.LEAST", 400)
    monkeypatch.setattr("pipla.networks.training.MOST", 800)
    with pytest.warns(pipla.ConvergenceWarning, match="'weight' has a Monte-Carlo error of"):
        left = networks.train(trained.network, key=KEY)
    assert left.status is pipla.Status.UNRELIABLE


def test_draws_of_a_long_run_are_thinned():
    draws = np.arange(75.0)
    found = _thinned(draws)
    assert len(found) == 20
    assert found[-1] == 74
    assert set(np.diff(found)) <= {3.0, 4.0}
    assert _thinned(draws[:20]) is not found
    np.testing.assert_array_equal(_thinned(draws[:20]), draws[:20])


COEFFICIENTS = 0.5 * np.random.default_rng(7).standard_normal(30)


def linear_data(n, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 30))
    return features, features @ COEFFICIENTS + 0.7 * rng.standard_normal(n)


def gaussian_maximum(features, y, centre):
    """The scale, the noise and the posterior mean of a linear regression, in closed form."""
    values, vectors = np.linalg.eigh(features @ features.T)
    turned = vectors.T @ y

    def potential(point):
        alpha, noise = point
        variances = np.exp(4 * alpha) * values + np.exp(2 * noise)
        likelihood = np.sum(np.log(variances) + turned**2 / variances) / 2
        return likelihood + (alpha - centre) ** 2 / 2

    alpha, noise = optimize.minimize(potential, [-1.0, 0.0], method="Nelder-Mead").x
    ridge = np.exp(2 * noise - 4 * alpha) * np.eye(features.shape[1])
    return alpha, noise, np.linalg.solve(features.T @ features + ridge, features.T @ y)


@pytest.fixture(scope="module")
def linear():
    """A linear network with a normal prior, trained."""
    features, y = linear_data(200)
    module = eqx.nn.Linear(30, "scalar", use_bias=False, key=KEY)
    network = networks.model(module, features, y, family="regression", layers={"weight": "normal"})
    return features, y, networks.train(network, num_steps=1000, key=KEY)


def test_scale_noise_and_weights_of_a_linear_network_are_those_of_the_closed_form(linear):
    """Monte-Carlo errors below .002 (alpha) and .003 (noise); the bias of the steps is .01."""
    features, y, trained = linear
    alpha, noise, mean = gaussian_maximum(features, y, trained.layers[0].first_scale())
    assert trained.scales["weight"] == pytest.approx(alpha, abs=0.02)
    assert np.log(trained.noise) == pytest.approx(noise, abs=0.03)
    weights = trained.particles["weight"].reshape(-1, 30)
    # 200 draws of sd .05, correlated: an error of at most .05/√40 each, so five sigma.
    np.testing.assert_allclose(weights.mean(axis=0), mean, atol=0.04)
    assert trained.status is pipla.Status.COMPLETED
    assert "noise" in repr(trained)


def test_intervals_hold_new_observations(linear):
    """90 % of 400 new responses: 4 standard deviations are 6 %."""
    _, _, trained = linear
    new, y = linear_data(400, seed=1)
    low, high = trained.predict_interval(new, 0.9)
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.9, abs=0.06)
    assert trained.error(new, y) == pytest.approx(0.7, abs=0.15)
    np.testing.assert_allclose(trained.predict(new), trained.predict_proba(new))


def test_equal_keys_give_equal_networks(linear):
    _, _, trained = linear
    again = networks.train(trained.network, num_steps=1000, key=KEY)
    assert again.scales == trained.scales
    np.testing.assert_array_equal(again.particles["weight"], trained.particles["weight"])


# Batches. #


def test_batches_give_the_scale_the_noise_and_the_weights_of_the_closed_form(linear):
    """Batches of 4 of 200 rows. Monte-Carlo errors are .003 (alpha) and .001 (noise).

    The variance of each of 30 directions, of 200 draws, has a relative error of .15 at most, their
    mean of .03.
    """
    features, y, trained = linear
    network = trained.network
    batches = networks.train(network, batch_size=4, num_steps=50_000, key=KEY)
    alpha, noise, mean = gaussian_maximum(features, y, network.layers[0].first_scale())
    assert batches.scales["weight"] == pytest.approx(alpha, abs=0.015)
    assert np.log(batches.noise) == pytest.approx(noise, abs=0.015)
    weights = batches.particles["weight"].reshape(-1, 30) - mean
    np.testing.assert_allclose(weights.mean(axis=0), 0, atol=0.04)
    precision = features.T @ features / np.exp(2 * noise) + np.exp(-4 * alpha) * np.eye(30)
    values, vectors = np.linalg.eigh(precision)
    widths = np.mean((weights @ vectors) ** 2, axis=0) * values
    assert widths.mean() == pytest.approx(1, abs=0.15)
    assert batches.status is pipla.Status.COMPLETED


def counts():
    """A Poisson network of two layers without biases."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((120, 2))
    labels = rng.poisson(np.exp(0.5 + np.sin(2 * features[:, 0]) + 0.5 * features[:, 1]))
    module = eqx.nn.MLP(
        *(2, 1, 8, 1), activation=jnp.tanh, use_bias=False, use_final_bias=False, key=KEY
    )
    return networks.model(module, features, labels, family="poisson")


@pytest.mark.slow
def test_batches_do_not_move_the_scales():
    """With 60 000 steps on all rows, whatever their length: -.32 and .525, to .01.

    Errors of these runs are .03 at most. Noise of batches that did not cancel made the second one
    .42; friction against the noise left both where the first steps had thrown them, -.18 and .31.
    """
    trained = networks.train(counts(), batch_size=12, key=KEY)
    assert trained.scales["layers/0"] == pytest.approx(-0.32, abs=0.09)
    assert trained.scales["layers/1"] == pytest.approx(0.525, abs=0.09)
    assert trained.status is pipla.Status.COMPLETED
    assert trained.result.num_steps >= 40_000  # 4000 passes over ten batches


def test_weights_that_have_hardly_moved_are_warned_of():
    """Four passes over the observations: the scales stand still, and seem to be known."""
    with pytest.warns(pipla.ConvergenceWarning, match="'layers/0' have hardly moved") as said:
        trained = networks.train(counts(), batch_size=3, num_steps=160, key=KEY)
    assert trained.status is pipla.Status.UNRELIABLE
    assert any("train with more steps" in str(one.message) for one in said)


def test_particles_that_move_as_far_as_they_differ_are_not_stuck():
    rng = np.random.default_rng(0)
    for num_particles, times in ((2, 2), (2, 20), (10, 3), (10, 20), (50, 2)):
        for _ in range(20):  # by chance 1e-4 each: 1 % for all
            draws = {"w": rng.standard_normal((num_particles * times, 5, 3))}
            assert _settling.stuck(draws, num_particles) == ()
    still = np.tile(rng.standard_normal((10, 5, 3)), (20, 1, 1))
    (said,) = map(str, _settling.stuck({"w": still * rng.uniform(0.999, 1.001, still.shape)}, 10))
    assert said.startswith("the weights of 'w' have hardly moved")
    assert len(_settling.stuck({"w": still}, 10)) == 1
    assert _settling.stuck({"w": still[:10]}, 10) == ()  # a single time
    assert _settling.stuck({"w": 0 * draws["w"]}, 50) != ()  # no division by 0, no log of 0


def test_deterministic_parts_are_learned_on_batches_too():
    """A bias of 3 by Adam."""
    features, y = linear_data(200)
    module = eqx.nn.Linear(30, "scalar", key=KEY)
    network = networks.model(module, features, y + 3, family="regression", layers=["weight"])
    whole = networks.train(network, num_steps=1000, key=KEY)
    assert float(whole.theta["network"].bias[0]) == pytest.approx(3.0, abs=0.2)
    batches = networks.train(network, batch_size=40, num_steps=5000, key=KEY)
    assert float(batches.theta["network"].bias[0]) == pytest.approx(3.0, abs=0.2)
    assert batches.scales["weight"] == pytest.approx(whole.scales["weight"], abs=0.05)
    assert batches.noise == pytest.approx(whole.noise, rel=0.05)


def test_batches_leave_few_observations_over():
    assert _even(200, None) == _even(200, 200) == 200
    assert [_even(200, most) for most in (199, 64, 50, 4, 1)] == [100, 50, 50, 4, 1]
    assert _even(11, 10) == 5  # two batches at least
    for rows in (97, 100, 1991):
        for most in (2, 7, 30, 45):
            size = _even(rows, most)
            assert most / 2 <= size <= most
            assert rows % size <= rows % most


def test_velocities_that_were_too_fast_do_not_brake_for_ever():
    """At the bound itself, rounding made them too fast in every step, and steps ever shorter."""
    velocities = {"w": 100 * jnp.ones((4, 5, 3))}
    slower, stiffness = _braked(velocities, {"w": jnp.ones(())})
    assert float(stiffness["w"]) == 1.25
    np.testing.assert_allclose(jnp.mean(jnp.square(slower["w"]), axis=(1, 2)), 1.0, rtol=1e-6)
    again, after = _braked(slower, stiffness)
    np.testing.assert_array_equal(again["w"], slower["w"])
    assert float(after["w"]) == 1.25


def test_a_scale_that_has_not_settled_is_warned_of(linear):
    _, _, trained = linear
    with pytest.warns(pipla.ConvergenceWarning, match="the scale of 'weight' was still moving"):
        short = networks.train(started(trained.network, 10.0), num_steps=200, key=KEY)
    assert short.status is pipla.Status.UNRELIABLE
    assert "WARNING" in repr(short)


def test_what_becomes_non_finite_is_a_status_and_a_warning():
    features, labels = tiny_data()
    network = networks.model(
        Tiny(), 100 * features, labels, loss=lambda score, label: jnp.sqrt(1.0 - score)
    )
    with pytest.warns(
        pipla.ConvergenceWarning, match="non-finite at step .* standardise the features"
    ):
        broken = networks.train(network, num_steps=100, key=KEY)
    assert broken.status is pipla.Status.NONFINITE
    assert np.all(np.isfinite(broken.particles["layer"]))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"num_particles": 3}, ValueError, "num_particles must be even"),
        ({"num_particles": 0}, ValueError, "num_particles must be at least 2"),
        ({"num_steps": 1}, ValueError, "num_steps must be at least 2"),
        ({"batch_size": 201}, ValueError, "batch_size must be at most 200"),
        ({"key": 3}, TypeError, "key must be a typed JAX key"),
        ({"network": 3}, TypeError, "made by `pipla.networks.model`"),
    ],
)
def test_what_is_refused(linear, options, error, says):
    given = {"network": linear[2].network, "key": KEY} | options
    network = given.pop("network")
    with pytest.raises(error, match=says):
        networks.train(network, **given)


def test_intervals_are_for_regressions():
    network = networks.model(Tiny(), *tiny_data())
    trained = networks.train(network, num_particles=2, num_steps=4, key=KEY)
    with pytest.raises(TypeError, match="predict_interval is for family='regression'"):
        trained.predict_interval(tiny_data()[0])
    assert set(np.unique(trained.predict(tiny_data()[0]))) <= {0, 1}


def test_more_free_weights_than_observations_are_named():
    """They overfit, and predictions are overconfident."""
    rng = np.random.default_rng(0)
    module = eqx.nn.MLP(6, 2, width_size=4, depth=1, key=KEY)
    features, labels = rng.standard_normal((20, 6)), np.arange(20) % 2
    network = networks.model(module, features, labels, layers=["layers/1"])
    with pytest.warns(pipla.ConvergenceWarning, match="24 weights that are not latent, more than"):
        trained = networks.train(network, num_particles=2, num_steps=4, key=KEY)
    assert trained.status is pipla.Status.UNRELIABLE
    assert any("the 20 observations" in str(finding) for finding in trained.findings)


def test_draws_of_all_times_fit_the_network_that_is_returned():
    """Biases moved on, and earlier weights did not fit them: intervals were five times too wide."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-3, 3, (100, 1))
    labels = np.sin(2 * features[:, 0]) + 0.2 * rng.normal(size=100)
    module = eqx.nn.MLP(1, "scalar", 20, 1, activation=jnp.tanh, key=KEY)
    network = networks.model(module, features, labels, family="regression")
    trained = networks.train(network, num_steps=1600, key=KEY)
    for trace in jax.tree.leaves(trained.result.theta_trace["network"]):
        assert np.ptp(trace[: trained.result.burn_in], axis=0).max() > 0.01
        assert np.ptp(trace[trained.result.burn_in :], axis=0).max() == 0
    draws = network.draws(trained.theta, trained.particles, features)
    misfits = np.sqrt(np.mean((draws.reshape(len(draws), -1) - labels) ** 2, axis=1))
    assert misfits.max() < 1.5 * trained.noise


def test_a_bias_that_is_far_away_is_warned_of(linear):
    """Adam goes at most .01 a step: 1000 steps do not reach a bias of 30."""
    features, y, _ = linear
    module = eqx.nn.Linear(30, "scalar", key=KEY)
    network = networks.model(module, features, y + 30, family="regression", layers=["weight"])
    with pytest.warns(pipla.ConvergenceWarning, match="bias of the network, which is not latent"):
        trained = networks.train(network, num_steps=2000, key=KEY)
    assert trained.status is pipla.Status.UNRELIABLE


def test_the_first_step_knows_the_curvature_of_every_layer_and_the_start_does_not_need_it():
    """Beside the largest eigenvalues of the blocks of the Hessian, at all particles."""
    evaluated = []

    def activation(z):
        evaluated.append(z)
        return jnp.tanh(z)

    module = eqx.nn.MLP(2, 2, width_size=4, depth=1, activation=activation, key=KEY)
    network = networks.model(module, *tiny_data())
    particles, form = network.particles(8, jax.random.key(1)), network.noncentred
    scheme, start = rule(network, num_steps=100), form.start(network.theta, particles)
    evaluated.clear()
    state = jax.jit(lambda z: scheme.init(form.model, network.theta, z))(start)
    assert not evaluated  # the network is compiled once, in the step
    with jax.numpy_dtype_promotion("standard"):  # for Adam
        state, _ = jax.jit(lambda key, state: scheme.step(key, state, form.model))(KEY, state)
    for name in particles:

        def largest(x, name=name):
            def potential(flat):
                moved = x | {name: flat.reshape(x[name].shape)}
                return network.model.smooth_value(network.theta, moved)

            hessian = jax.hessian(potential)(x[name].ravel())
            return jnp.max(jnp.abs(jnp.linalg.eigvalsh(hessian)))

        exact = jax.vmap(largest)(particles)
        assert 0.7 * exact.min() < state.stiffness[name] < 1.0001 * exact.max()


@pytest.mark.parametrize("standardised", [True, False])
def test_advice_to_standardise_is_for_data_that_are_not(standardised):
    features = np.random.default_rng(0).standard_normal((40, 2)) * (1 if standardised else 50)
    module = eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0))
    network = networks.model(module, features, np.arange(40) % 2)
    assert network.likelihood.is_standardised() is standardised
    away = {"bias": np.arange(100.0)}  # as far as Adam goes
    (said,) = map(
        str, _settling.travelling(away, 10, 90, 1.0, network.likelihood.is_standardised())
    )
    assert ("standardise" in said) is not standardised
    assert "num_steps" in said


def test_a_network_that_explains_nothing_is_named():
    """As after a run whose weights stayed near 0; one that explains its labels is not."""
    features, labels = tiny_data()
    network = networks.model(Tiny(), features, labels)
    near = {"layer": np.full((1, 2, 2), 1e-3)}
    (sentence,) = map(str, _explained.nothing(network, network.theta, near))
    assert "no more of its observations than a constant" in sentence
    right = {"layer": np.array([[[1.5, 0.2], [-0.3, -1.0]]])}
    assert _explained.nothing(network, network.theta, right) == ()


def test_training_on_labels_of_chance_says_that_nothing_is_explained():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    with pytest.warns(pipla.ConvergenceWarning, match="than a constant"):
        trained = networks.train(
            networks.model(Tiny(), rng.standard_normal((300, 2)), labels), num_steps=400, key=KEY
        )
    assert trained.status is pipla.Status.UNRELIABLE
