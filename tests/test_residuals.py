"""Whether a restored image is to be believed: residuals, mixing, and where it started."""

import types
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.imaging import MisfitWarning, deconvolve
from pipla.imaging._residuals import examine, noise_in_details
from pipla.imaging._verdict import LARGEST_RHAT, Looks
from pipla.imaging.boundaries import as_kernel
from pipla.operators import CircularConvolution, Identity, Mask, blur

SHAPE = (96, 80)


def likelihood(operator, observed):
    return types.SimpleNamespace(operator=operator, observations=jnp.asarray(observed))


def draws(operator, scale=1.0, seed=0, shape=SHAPE):
    """Two equal images with few fine details, and observations that differ from both by noise."""
    rng = np.random.default_rng(seed)
    x = 0.3 * rng.standard_normal(shape)
    for axis in range(min(len(shape), 2)):
        x = np.cumsum(x, axis=axis)
    noise = rng.standard_normal(shape) * scale
    made = np.asarray(operator.apply(jnp.asarray(x)))
    return likelihood(operator, made + noise), jnp.stack([jnp.asarray(x)] * 2)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(96, 80), (400,), (40, 30, 3)])
def test_the_noise_that_was_stated_is_not_reported(shape, seed):
    """By chance in one of 10 000."""
    given, particles = draws(Identity(), shape=shape, seed=seed)
    found = examine(given, 1.0, particles)
    assert found.finding is None
    assert found.sd == pytest.approx(1, abs=0.2)


def test_missing_pixels_are_not_counted():
    mask = np.random.default_rng(1).random(SHAPE) < 0.3
    given, particles = draws(Mask(mask))
    given.observations = jnp.where(mask, given.observations, 1e3)
    assert examine(given, 1.0, particles).finding is None


@pytest.mark.parametrize("noise", [0.6, 2.0])
def test_another_noise_is_reported(noise):
    given, particles = draws(Identity())
    found = examine(given, noise, particles)
    assert "the noise does not fit" in str(found.finding)
    assert found.sd == pytest.approx(1 / noise, rel=0.05)


def test_noise_in_one_region_is_reported_there():
    scale = np.ones(SHAPE)
    scale[60:72, 40:50] = 3.0
    assert "around [66, 45]" in str(examine(*_with(draws(Identity(), scale))).finding)


def test_power_where_the_blur_is_blind_is_reported():
    operator = CircularConvolution(blur.box(8), SHAPE)
    given, particles = draws(operator)
    wave = 0.5 * np.cos(2 * np.pi * np.arange(SHAPE[0]) / 8)[:, None] * np.ones(SHAPE)
    given.observations = given.observations + wave
    finding = examine(given, 1.0, particles).finding
    assert "the blur or the noise does not fit; at periods near" in str(finding)


def _with(pair, noise=1.0):
    return pair[0], noise, pair[1]


@pytest.mark.slow
def test_a_wrong_blur_is_said_and_a_right_one_is_not():
    rng = np.random.default_rng(0)
    scene = np.kron(rng.uniform(20, 230, (16, 16)), np.ones((7, 7)))  # with power at period 8
    operator = CircularConvolution(blur.gaussian(2.0), scene.shape)
    seen = np.asarray(operator.apply(jnp.asarray(scene)))[10:-10, 10:-10]
    observed = seen + 2 * rng.standard_normal(seen.shape)
    right = deconvolve(observed, "gaussian:2", noise=2.0, maximise=False)
    assert right.sound
    with pytest.warns(MisfitWarning, match="the blur or the noise does not fit"):
        wrong = deconvolve(observed, "box:8", noise=2.0, maximise=False)
    assert not wrong.sound
    assert wrong.result.status is pipla.Status.UNRELIABLE
    assert "does not fit" in wrong.result.message
    assert "does not fit" in repr(wrong)


def seen(rows):
    looks = Looks(rows.shape[-1])
    for step, row in enumerate(rows):
        looks(types.SimpleNamespace(particles=row, step=5 * step + 5, num_steps=10**6, burn_in=0))
    return looks


def test_particles_that_drift_have_not_mixed():
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((40, 2, 200))
    assert seen(mixed).rhat() < 1.2 < LARGEST_RHAT
    drift = 0.2 * np.arange(40)[:, None, None]
    assert seen(mixed + drift).rhat() > LARGEST_RHAT


@pytest.mark.parametrize("steps", [12, 60])
@pytest.mark.filterwarnings("always")
def test_doubts_about_an_image_speak_of_what_its_user_has(steps):
    """Few steps from a start far away: whatever is said must not be about the algorithm."""
    rng = np.random.default_rng(0)
    observed = np.kron(rng.uniform(0, 100, (4, 4)), np.ones((6, 6))) + rng.standard_normal((24, 24))
    far = 1e4 * rng.standard_normal((24, 24))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = pipla.imaging.restore(
            observed, Identity(), noise=1.0, num_steps=steps, maximise=False, start=far
        )
    words = " ".join([found.result.message, *(str(warning.message) for warning in caught)])
    assert "theta_scale" not in words
    assert "noncentred" not in words
    assert "max_iterations" not in words


def test_a_flat_start_is_a_start():
    observed = np.kron([[0.0, 50.0], [50.0, 0.0]], np.ones((8, 8)))
    observed = observed + np.random.default_rng(0).standard_normal(observed.shape)
    options = {"num_steps": 60, "maximise": False}
    flat = pipla.imaging.restore(
        observed, Identity(), noise=1.0, start=np.zeros((16, 16)), **options
    )
    usual = pipla.imaging.restore(observed, Identity(), noise=1.0, **options)
    assert flat.strength == pytest.approx(usual.strength, rel=0.2)


def test_the_kernel_of_a_volume_has_three_axes():
    assert as_kernel("gaussian:1", (20, 20, 20)).shape == (9, 9, 9)
    assert as_kernel("box:3", (20, 20, 3), (0, 1)).shape == (3, 3)
    assert as_kernel("box:3", (20,)).shape == (3,)


@pytest.mark.parametrize("bits", [None, 8])
def test_noise_above_the_stated_one_is_seen_in_the_finest_details(bits):
    """Residuals do not show it: the restored image keeps the noise."""
    rng = np.random.default_rng(0)
    image = np.where(np.add.outer(np.arange(64), np.arange(64)) < 60, 50.0, 180.0)
    observed = image + 15 * rng.standard_normal(image.shape)
    if bits:
        observed = np.clip(np.round(observed), 0, 2**bits - 1)
    assert noise_in_details(observed, 15.0) is None
    assert noise_in_details(observed, 4.0) == pytest.approx(15, rel=0.1)


def test_details_of_the_image_itself_are_not_taken_for_noise():
    """They grow with the size of the blocks; of noise they do not."""
    rng = np.random.default_rng(0)
    texture = np.cumsum(np.cumsum(20 * rng.standard_normal((64, 64)), axis=0), axis=1)
    assert noise_in_details(texture + rng.standard_normal(texture.shape), 1.0) is None
