"""Tuning: curvature against NumPy's eigenvalues, suggestions with reasons, broken conditions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import prox, tuning
from pipla.testing import compilations
from pipla.tuning import LocalGeometry
from pipla.tuning.conditions import warn_broken


def measure_curvature(model, theta, particles, theta_scale=1.0, probes=4):
    return LocalGeometry(model, theta, particles, probes).curvature(theta_scale)


def auto_scale(model, theta, particles):
    return LocalGeometry(model, theta, particles).theta_scale()


def complete(algorithm, model, theta, particles):
    return algorithm.completed(LocalGeometry(model, theta, particles))


D = 4


def quadratic(theta, x, hessian):
    v = jnp.concatenate([theta[None], x])
    return v @ hessian @ v / 2


def symmetric(eigenvalues, seed=0):
    """A matrix with these eigenvalues."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(len(eigenvalues),) * 2))
    return basis @ np.diag(eigenvalues) @ basis.T


def curvature(hessian, scale=1.0, particles=2):
    model = pipla.Model(quadratic, data=np.asarray(hessian, dtype=float))
    cloud = jnp.zeros((particles, len(hessian) - 1))
    return measure_curvature(model, jnp.zeros(()), cloud, scale)


def scaled(hessian, scale):
    """P^(1/2) H P^(1/2), with P on the theta block."""
    root = np.diag([np.sqrt(scale), *np.ones(len(hessian) - 1)])
    return root @ hessian @ root


SPECTRA = {
    "definite": [0.5, 1.0, 2.0, 3.0, 7.0],
    "one stiff direction": [1.0, 1.0, 1.0, 1.0, 1e4],
    "clustered at the top": [1.0, 2.0, 6.9, 6.99, 7.0],
    "all equal": [3.0] * 5,
    "indefinite": [-2.0, -1.0, 0.5, 3.0, 5.0],
    "mostly negative": [-9.0, -1.0, 0.5, 1.0, 2.0],
    "all negative": [-5.0, -4.0, -2.0, -1.0, -0.5],
    "ends of the same size": [-4.0, -1.0, 0.0, 1.0, 4.0],
    "ends of nearly the same size": [-4.0, -1.0, 0.0, 1.0, 4.01],
    "flat": [0.0] * 5,
    "singular": [0.0, 0.0, 0.0, 0.0, 2.0],
}


@pytest.mark.parametrize("scale", [1.0, 0.25, 30.0])
@pytest.mark.parametrize("name", SPECTRA)
def test_curvature_has_the_extreme_eigenvalues_in_the_metric(name, scale):
    hessian = symmetric(SPECTRA[name])
    found = curvature(hessian, scale)
    exact = np.linalg.eigvalsh(scaled(hessian, scale))
    # The end of larger modulus is found first, the other one relative to it: 1 % and 5 %.
    size = np.max(np.abs(exact))
    for end, value in ((found.smallest, exact[0]), (found.largest, size)):
        share = 0.01 if abs(value) > 0.999 * size else 0.05
        np.testing.assert_allclose(end, value, atol=share * size + 1e-12)


def test_curvature_of_a_saddle():
    # Theta and x coupled, neither curved alone: eigenvalues +1 and -1 exactly.
    found = curvature([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose([found.smallest, found.largest], [-1.0, 1.0], rtol=1e-6)


def test_curvature_takes_the_worst_of_the_first_particles():
    model = pipla.Model(lambda theta, x, data: jnp.sum(x**4) / 12)  # second derivative x²
    cloud = jnp.asarray([[1.0], [3.0], [0.5], [2.0], [100.0]])
    found = measure_curvature(model, jnp.zeros(()), cloud, probes=4)
    np.testing.assert_allclose(found.largest, 9.0, rtol=1e-6)
    assert float(measure_curvature(model, jnp.zeros(()), cloud, probes=9).largest) > 9999


def test_curvature_of_pytrees_with_a_scale_for_each_part():
    def potential(theta, x, data):
        return 2 * theta["a"] ** 2 + jnp.sum(theta["b"] ** 2) / 2 + jnp.sum(x["w"] ** 2)

    theta = {"a": jnp.zeros(()), "b": jnp.zeros(2)}
    cloud = {"w": jnp.zeros((2, 3))}
    model = pipla.Model(potential)
    for scales, largest in (({"a": 1.0, "b": 1.0}, 4.0), ({"a": 0.1, "b": 9.0}, 9.0), (0.1, 2.0)):
        found = measure_curvature(model, theta, cloud, scales)
        np.testing.assert_allclose(found.largest, largest, rtol=1e-6)


def test_curvature_is_measured_in_the_metric_of_the_particles():
    def potential(theta, x, data):
        return 4 * jnp.sum(x**2)

    model = pipla.Model(potential, metric=lambda theta, x: jnp.asarray(0.5, x.dtype))
    found = measure_curvature(model, jnp.zeros(()), jnp.zeros((2, 3)))
    np.testing.assert_allclose(found.largest, 4.0, rtol=1e-6)


def test_curvature_does_not_depend_on_the_nonsmooth_term():
    hessian = symmetric(SPECTRA["definite"])
    model = pipla.Model(quadratic, prox.LaplaceLocation(1e-3), data=hessian)
    found = measure_curvature(model, jnp.zeros(()), jnp.ones((2, D)))
    np.testing.assert_allclose(found.largest, 7.0, rtol=1e-3)


# Suggestions. #

STIFF = symmetric(SPECTRA["definite"])
MODEL = pipla.Model(quadratic, prox.LaplaceLocation(), data=STIFF)
CLOUD = jnp.asarray(np.random.default_rng(0).normal(size=(3, D)))
THETA = jnp.zeros(())


def test_suggestions_come_with_reasons():
    numbers = tuning.suggest(MODEL, THETA, CLOUD)
    assert set(numbers.reasons) == {"step_size", "smoothing", "theta_scale"}
    largest = float(numbers.curvature.largest)
    np.testing.assert_allclose(numbers.smoothing, 1 / largest)
    smallest = float(numbers.curvature.smallest)
    assert smallest > 0
    np.testing.assert_allclose(numbers.step_size, 0.98 / (2 * largest + smallest))
    np.testing.assert_allclose(numbers.theta_scale, 1 / D)
    text = str(numbers)
    assert f"step_size = {numbers.step_size:.4g}: 0.98/(L + 1/smoothing + mu)" in text
    assert f"L = {largest:.4g}" in numbers.reasons["smoothing"]
    assert "1/d" in numbers.reasons["theta_scale"]


def test_a_theta_scale_that_is_given_is_kept_and_said_so():
    numbers = tuning.suggest(MODEL, THETA, CLOUD, theta_scale=0.3)
    assert numbers.theta_scale == 0.3
    assert numbers.reasons["theta_scale"] == "as given"
    exact = np.linalg.eigvalsh(scaled(STIFF, 0.3))[-1]
    np.testing.assert_allclose(numbers.curvature.largest, exact, rtol=1e-3)


def test_a_flat_potential_still_gets_numbers():
    model = pipla.Model(lambda theta, x, data: jnp.sum(x))
    numbers = tuning.suggest(model, THETA, CLOUD)
    assert (numbers.step_size, numbers.smoothing) == (0.49, 1.0)
    assert np.isfinite(numbers.theta_scale)


def test_a_concave_potential_is_as_stiff_as_a_convex_one():
    model = pipla.Model(lambda theta, x, data: -3 * jnp.sum(x**2) + theta**2)
    numbers = tuning.suggest(model, THETA, CLOUD)
    np.testing.assert_allclose([numbers.step_size, numbers.smoothing], [0.98 / 12, 1 / 6], 1e-3)
    assert "strongly convex" in numbers.reasons["step_size"]
    (sentence,) = tuning.broken_conditions(pipla.PIPGLA(0.9), model, THETA, CLOUD)
    assert "L = 6" in sentence


def test_numbers_that_are_left_out_are_filled_in_and_others_stay():
    whole = complete(pipla.MYIPLA(0.01), MODEL, THETA, CLOUD)
    numbers = tuning.suggest(MODEL, THETA, CLOUD, 1.0)
    assert float(whole.step_size) == 0.01
    np.testing.assert_allclose(whole.smoothing, numbers.smoothing)
    assert float(whole.theta_scale) == 1.0
    auto = complete(pipla.PIPGLA(theta_scale="auto"), MODEL, THETA, CLOUD)
    np.testing.assert_allclose(auto.theta_scale, 1 / D)
    assert auto.smoothing is None  # PIPGLA's is its step size
    # A smoothing that is given is a stiffness the step must suit.
    soft, hard = (complete(pipla.MYIPLA(smoothing=lam), MODEL, THETA, CLOUD) for lam in (1.0, 1e-3))
    assert float(hard.step_size) < 1e-3 < float(soft.step_size)
    assert tuning.broken_conditions(hard, MODEL, THETA, CLOUD) == []
    given = pipla.PIPGLA(0.1)
    assert complete(given, MODEL, THETA, CLOUD) is given


def two_parts(theta, x, data):
    return jnp.sum(x["w"] ** 2) + jnp.sum(x["v"] ** 2) / 2 + 8 * jnp.sum(theta["c"] ** 2)


def test_auto_scale_is_one_over_the_size_of_the_coupled_block():
    term = prox.LaplaceLocation().on(theta="a", x="w") + prox.LaplaceScale().on(theta="b", x="v")
    model = pipla.Model(two_parts, term)
    theta = {"a": jnp.zeros(()), "b": jnp.zeros(()), "c": jnp.zeros(2)}
    cloud = {"w": jnp.ones((3, 5)), "v": jnp.ones((3, 2, 4))}
    scale = auto_scale(model, theta, cloud)
    np.testing.assert_allclose(scale["a"], 1 / 5)
    np.testing.assert_allclose(scale["b"], 1 / 8)
    # c sits in the smooth part only: L_x / L_c = 2 / 16.
    np.testing.assert_allclose(scale["c"], 2 / 16, rtol=1e-5)


def test_auto_scale_of_a_flat_theta_is_one_over_the_size_of_x():
    model = pipla.Model(lambda theta, x, data: jnp.sum(x**2) + theta * jnp.sum(x))
    np.testing.assert_allclose(auto_scale(model, THETA, CLOUD), 1 / D)


def test_auto_scale_never_speeds_theta_up():
    model = pipla.Model(lambda theta, x, data: 50 * jnp.sum(x**2) + theta**2 / 200)
    np.testing.assert_allclose(auto_scale(model, THETA, CLOUD), 1.0)


# Conditions. #

# At L = 7, mu = 0.5 (STIFF, theta_scale 1): the largest step of each, by PAPER.md section 5.
LIMITS = {
    "PGD": (pipla.PGD, {}, 1 / 7, "IPLA"),
    "IPLA": (pipla.IPLA, {}, 1 / 7, "IPLA"),
    "MYIPLA": (pipla.MYIPLA, {"smoothing": 0.5}, 1 / (7 + 2), "MYIPLA"),
    "MYPGD": (pipla.MYPGD, {"smoothing": 0.5}, 1 / (7 + 2 + 0.5), "MYPGD"),
    "PIPGLA": (pipla.PIPGLA, {}, 1 / 7, "PIPGLA"),
    "PIPULA": (pipla.PIPULA, {}, 1 / 7, "PIPULA"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_largest_step_of_each_theorem(name):
    preset, numbers, limit, source = LIMITS[name]
    below, above = (preset(share * limit, **numbers) for share in (0.99, 1.02))
    assert tuning.broken_conditions(below, MODEL, THETA, CLOUD) == []
    (sentence,) = tuning.broken_conditions(above, MODEL, THETA, CLOUD)
    assert sentence.startswith(f"step_size = {1.02 * limit:.4g} exceeds {limit:.4g} (")
    assert source in sentence
    assert "with L = 7 at the start" in sentence


def test_the_block_scale_counts_in_the_condition():
    wide = 1 / np.linalg.eigvalsh(scaled(STIFF, 9.0))[-1]
    assert wide < 1 / 7
    algorithm = pipla.PIPGLA(0.9 / 7, theta_scale=9.0)
    assert tuning.broken_conditions(algorithm, MODEL, THETA, CLOUD)
    assert not tuning.broken_conditions(pipla.PIPGLA(0.9 / 7), MODEL, THETA, CLOUD)


@pytest.mark.parametrize(
    ("smoothing", "broken"), [(0.1, False), (0.1052, False), (0.12, True), (0.09, True)]
)
def test_smoothing_of_pipgla_must_be_close_to_its_step(smoothing, broken):
    # step <= smoothing <= step/(1 - mu step) = 0.1/(1 - 0.05) = 0.10526
    sentences = tuning.broken_conditions(pipla.PIPGLA(0.1, smoothing), MODEL, THETA, CLOUD)
    assert bool(sentences) == broken
    if broken:
        assert sentences[0].startswith(f"smoothing = {smoothing:.4g} is outside [0.1, 0.105")
        assert "mu = 0.5" in sentences[0]


def test_suggested_numbers_break_no_condition():
    for preset in (pipla.PGD, pipla.IPLA, pipla.MYIPLA, pipla.MYPGD, pipla.PIPGLA, pipla.PIPULA):
        assert tuning.broken_conditions(preset(), MODEL, THETA, CLOUD) == []
        auto = preset(theta_scale="auto")
        assert tuning.broken_conditions(auto, MODEL, THETA, CLOUD) == []


def test_every_broken_condition_is_warned_of():
    with pytest.warns(tuning.TheoryWarning) as caught:
        warn_broken(pipla.PIPGLA(1.0, 5.0), LocalGeometry(MODEL, THETA, CLOUD))
    messages = [str(warning.message) for warning in caught]
    assert [message.split(" = ")[0] for message in messages] == ["step_size", "smoothing"]
    assert all("tuning.suggest" in message for message in messages)


def test_float32_is_measured_in_float32():
    model = pipla.Model(quadratic, data=STIFF.astype(np.float32))
    found = measure_curvature(model, THETA.astype(jnp.float32), CLOUD.astype(jnp.float32))
    assert found.largest.dtype == jnp.float32
    np.testing.assert_allclose(found.largest, 7.0, rtol=1e-3)


def test_curvature_is_measured_by_one_program_for_all_numbers():
    tuning.broken_conditions(pipla.PIPGLA(0.1), MODEL, THETA, CLOUD)
    theta, cloud = THETA + 1.0, -CLOUD
    with compilations() as compiled:
        tuning.broken_conditions(pipla.PIPGLA(0.2, theta_scale=0.3), MODEL, theta, cloud)
    assert compiled == []


STEEP = pipla.Model(lambda theta, x, _: 500 * theta**2 + jnp.sum(x**2) / 2, prox.L1())


@pytest.mark.parametrize("algorithm", [pipla.MYULA(0.1, 1.0), pipla.PGLA(0.1)])
def test_a_theta_that_does_not_move_limits_no_step(algorithm):
    assert tuning.broken_conditions(algorithm, STEEP, THETA, CLOUD) == []
    moving = pipla.PIPGLA(0.1)
    assert tuning.broken_conditions(moving, STEEP, THETA, CLOUD)


def test_a_sampler_gets_its_step_from_x_alone():
    step = complete(pipla.MYULA(theta_scale=1.0), STEEP, THETA, CLOUD).step_size
    np.testing.assert_allclose(step, 0.98 / 3, rtol=1e-3)  # L = mu = 1/smoothing = 1


def test_a_splitting_given_its_smoothing_takes_it_as_its_step():
    for smoothing, step in ((0.01, 0.01), (50.0, 0.98 / 7)):
        whole = complete(pipla.PIPGLA(smoothing=smoothing, theta_scale=1.0), MODEL, THETA, CLOUD)
        np.testing.assert_allclose(whole.step_size, step, rtol=1e-3)


def test_a_learned_strength_gets_a_smoothing_that_it_bears():
    model = pipla.Model(lambda theta, x, _: jnp.sum(x**2) / 2, prox.LaplaceScale())
    for theta in (-0.5, 0.0):
        numbers = tuning.suggest(model, theta, CLOUD)
        np.testing.assert_allclose(numbers.smoothing, 0.05 * np.exp(4 * theta))
        assert "E12" in numbers.reasons["smoothing"]
    assert tuning.suggest(model, 3.0, CLOUD).smoothing == pytest.approx(1.0, rel=1e-3)
    sampler = complete(pipla.MYULA(theta_scale=1.0), model, THETA, CLOUD)
    assert float(sampler.smoothing) == pytest.approx(1.0, rel=1e-3)  # its prox is over x alone
    parts = (2.0 * prox.LaplaceScale()).translate(1.0).on(theta="a", x="u") + prox.L1().on(x="v")
    theta, x = {"a": jnp.zeros(()), "b": jnp.ones(())}, {"u": jnp.ones(3), "v": jnp.ones(2)}
    np.testing.assert_allclose(parts.largest_smoothing(theta, x), 0.025)


def test_stiffness_beyond_the_square_root_of_the_largest_float_is_measured():
    model = pipla.Model(lambda theta, x, _: jnp.float32(1e25) * jnp.sum(x**2) + theta**2)
    found = measure_curvature(model, jnp.float32(0), jnp.zeros((2, 3), jnp.float32))
    np.testing.assert_allclose(found.largest, 2e25, rtol=1e-3)


def test_schemes_inside_others_are_completed_and_judged():
    whole = complete(pipla.Annealed(pipla.MYIPLA(0.01, theta_scale="auto")), MODEL, THETA, CLOUD)
    np.testing.assert_allclose(whole.scheme.theta_scale, 1 / D)
    assert tuning.broken_conditions(pipla.Annealed(pipla.PIPGLA(100.0)), MODEL, THETA, CLOUD)
    adaptive = complete(pipla.Adaptive(pipla.MYIPLA()), MODEL, THETA, CLOUD)
    assert adaptive.scheme.smoothing is not None
    assert adaptive.scheme.step_size is None  # Adaptive sets it itself


BAD_SUGGESTIONS = {
    "model": ((None, THETA, CLOUD), {}, TypeError, "model must be a pipla.Model"),
    "integer theta": ((MODEL, 0, CLOUD), {}, TypeError, "theta must be floating"),
    "no axis": ((MODEL, THETA, jnp.zeros(())), {}, ValueError, "particles has shape"),
    "NaN": ((MODEL, THETA, CLOUD * np.nan), {}, ValueError, "particles has"),
    "scale": ((MODEL, THETA, CLOUD), {"theta_scale": -1.0}, ValueError, "theta_scale must be"),
    "word": ((MODEL, THETA, CLOUD), {"theta_scale": "a"}, ValueError, "theta_scale must be one of"),
    "smoothing": ((MODEL, THETA, CLOUD), {"smoothing": 0.0}, ValueError, "smoothing must be"),
}


@pytest.mark.parametrize("name", BAD_SUGGESTIONS)
def test_what_suggest_is_given_is_checked(name):
    arguments, options, kind, message = BAD_SUGGESTIONS[name]
    with pytest.raises(kind, match=message):
        tuning.suggest(*arguments, **options)


def test_plain_numbers_and_arrays_of_scales_will_do():
    assert str(tuning.suggest(MODEL, 0.0, CLOUD)) == str(tuning.suggest(MODEL, THETA, CLOUD))
    model = pipla.Model(lambda theta, x, _: jnp.sum((x - theta) ** 2), prox.L1())
    scale = jnp.array([1.0, 2.0, 0.5, 1.0])
    assert "0.5 to 2: as given" in str(tuning.suggest(model, jnp.zeros(D), CLOUD, scale))


def test_adaptive_steps_bring_a_flat_theta_to_the_pace_of_x():
    """Theta is 10⁴ times flatter than x: with P at most 1 it would take 10⁴ steps."""

    def smooth(theta, x, data):
        return 50.0 * jnp.sum((x - 1.0) ** 2) + 0.005 * (theta - 1.0) ** 2

    result = pipla.run(
        pipla.Model(smooth),
        pipla.Adaptive(pipla.PIPGLA(1.0, theta_noise=False)),
        theta=jnp.asarray(0.8),
        particles=jnp.zeros((4, 3)),
        num_steps=300,
        key=jax.random.key(0),
    )
    assert abs(result.theta_last - 1.0) < 0.05
    assert np.max(np.abs(np.diff(result.theta_trace))) < 0.00101  # but in short moves
