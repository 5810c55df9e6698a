"""Photographs: the edge, missing pixels, noise that cannot be learned."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import convolve

from pipla.diagnostics import ConvergenceWarning
from pipla.imaging import (
    BoundaryWarning,
    IdentifiabilityWarning,
    MisfitWarning,
    TVDeconvolution,
    TVDenoiser,
    deconvolve,
    estimate_noise,
    psnr,
    restore,
)
from pipla.imaging.boundaries import as_kernel, cropped_blur_matrix
from pipla.models.images import tv_model
from pipla.operators import Dense, Identity, Mask, blur, convolution

pytestmark = pytest.mark.slow

SIZE = 48
BLOCKS = np.kron([[20.0, 180.0, 90.0], [120.0, 40.0, 200.0]], np.ones((12, 10)))
NOISY = BLOCKS + 10 * np.random.default_rng(0).standard_normal(BLOCKS.shape)


def photograph(psf, name="camera", size=SIZE):
    """The middle of a scene, and its observation: blurred before cropping, noisy, 8 bits."""
    from skimage import data

    scene = np.asarray(getattr(data, name)(), float)
    window = tuple(slice((n - size) // 2, (n + size) // 2) for n in scene.shape)
    noise = 2 * np.random.default_rng(0).standard_normal((size, size))
    observed = convolve(scene, psf, mode="reflect")[window] + noise
    return scene[window], np.clip(np.rint(observed), 0, 255)


# What lies beyond the edge #


@pytest.mark.parametrize("kind", ["gaussian:2", "box:9"])
def test_a_photograph_gets_better_with_the_defaults(kind):
    truth, observed = photograph(blur.parse(kind))
    restored = TVDeconvolution(kind).fit_transform(observed)
    assert restored.shape == observed.shape
    assert psnr(restored, truth) > psnr(observed, truth) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)  # the scene is not mirrored
        others = [
            deconvolve(observed, kind, noise=2.0, boundary=boundary, maximise=False).mean
            for boundary in ("reflect", "renormalised")
        ]
    assert psnr(restored, truth) > max(psnr(other, truth) for other in others) - 0.5


def test_a_kernel_that_is_no_product_suits_photographs_too():
    rows, columns = np.mgrid[-4:5, -4:5]
    disk = (rows**2 + columns**2 <= 16.5).astype(float)
    disk /= disk.sum()
    truth, observed = photograph(disk)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = deconvolve(observed, disk, noise=2.0)
    assert found.mean.shape == found.map.shape == found.std.shape == observed.shape
    assert psnr(found.mean, truth) > psnr(observed, truth) + 1


@pytest.mark.filterwarnings("ignore::pipla.imaging.MisfitWarning")
def test_a_seam_that_does_not_fit_is_reported():
    psf = blur.gaussian(2)
    _, observed = photograph(psf)
    with pytest.warns(BoundaryWarning, match=r"along axis \d .* not periodic"):
        deconvolve(observed, psf, noise=2.0, boundary="circular", num_steps=3, maximise=False)
    with pytest.warns(BoundaryWarning):
        restore(observed, convolution(psf, observed.shape), noise=2.0, num_steps=3, maximise=False)


def test_a_periodic_image_is_not_reported():
    """Of 200 periodic images none is reported; the rule promises fewer than one in 16."""
    from pipla.imaging._observations import check_seam

    operator = convolution(blur.box(5), (32, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed in range(200):
            rng = np.random.default_rng(seed)
            scene = np.kron(rng.uniform(0, 255, (4, 4)), np.ones((8, 8)))
            shifted = np.roll(scene, rng.integers(0, 32, 2), (0, 1))
            seen = np.asarray(operator.apply(jnp.asarray(shifted)))
            check_seam(operator, seen + 2 * rng.standard_normal(seen.shape))


def test_a_border_is_blurred_like_the_scene():
    """A scene that is constant beyond its border is observed without an error."""
    kernel = np.array([0.1, 0.2, 0.4, 0.25, 0.05])
    scene = np.random.default_rng(0).normal(size=12)
    long = np.pad(scene, 4, mode="edge")
    wanted = np.convolve(long, kernel, mode="same")[6:-6]
    matrix = cropped_blur_matrix(kernel, 8, (2, 2))
    np.testing.assert_allclose(matrix @ scene, wanted, atol=1e-12)


@pytest.mark.filterwarnings("ignore::pipla.imaging.MisfitWarning")  # they are not blurred
def test_colours_and_even_kernels_have_a_border():
    colour = np.stack([BLOCKS, 255 - BLOCKS], axis=2)
    found = deconvolve(colour, np.full((2, 3), 1 / 6), noise=2.0, axes=(0, 1), num_steps=20)
    assert found.mean.shape == found.map.shape == colour.shape


def test_a_kernel_too_large_is_refused_before_it_is_made():
    with pytest.raises(ValueError, match="32769 pixels wide, larger than the image"):
        as_kernel("gaussian:4096", (512, 512))
    with pytest.raises(ValueError, match="larger than the image"):
        as_kernel("box:1" + "0" * 30, (512, 512))
    with pytest.raises(ValueError, match="not a positive number"):
        as_kernel("gaussian:wide", (512, 512))
    with pytest.raises(ValueError, match="boundary must be one of 'unknown'"):
        deconvolve(BLOCKS, "box:3", noise=1.0, boundary="zero")


# Missing pixels #


def missing(share=0.3):
    return np.random.default_rng(1).uniform(size=BLOCKS.shape) < share


def rms(image):
    return float(np.sqrt(np.mean((image - BLOCKS) ** 2)))


def test_masked_arrays_and_nan_and_masks_say_the_same():
    holes = missing()
    spoiled = np.where(holes, 9999.0, NOISY)
    absent = np.where(holes, np.nan, NOISY)
    options = {"num_steps": 150, "maximise": False}
    wanted = restore(np.where(holes, 0, NOISY), Mask(~holes), noise=10.0, **options).mean
    assert rms(wanted) < 25
    for operator, observed in (
        (Identity(), np.ma.masked_array(spoiled, holes)),
        (Identity(), absent),
        (Mask(~holes), absent),
        (Mask(~holes), np.ma.masked_array(spoiled, holes)),
    ):
        np.testing.assert_allclose(
            restore(observed, operator, noise=10.0, **options).mean, wanted, 1e-3
        )
    fitted = TVDenoiser(10.0, num_steps=150).fit(np.ma.masked_array(spoiled, holes))
    np.testing.assert_allclose(fitted.restored_, wanted, 1e-3)
    assert rms(fitted.transform(absent)) < 25


def test_missing_values_of_a_matrix_are_left_out():
    rng = np.random.default_rng(0)
    matrix, x = rng.normal(size=(12, 6)), np.repeat([0.0, 3.0], 3)
    observed = matrix @ x + 0.1 * rng.standard_normal(12)
    observed[4] = np.nan
    found = restore(observed, Dense(matrix), noise=0.1, num_steps=20, maximise=False)
    kept = np.isfinite(observed)
    same = restore(observed[kept], Dense(matrix[kept]), noise=0.1, num_steps=20, maximise=False)
    np.testing.assert_array_equal(found.mean, same.mean)


def test_missing_values_of_a_matrix_of_images_keep_the_shape():
    """The shape was lost with the missing rows, and total variation taken of the ravelled image."""
    from pipla.imaging._observations import seen_through

    seen = np.array([True, False, True])
    operator, values = seen_through(Dense(np.eye(3, 6), (2, 3)), np.arange(3.0), seen)
    assert operator.shape == (2, 3)
    assert values.tolist() == [0.0, 2.0]


def test_no_data_at_all_are_refused():
    with pytest.raises(ValueError, match="mask is 0 everywhere"):
        restore(NOISY, Mask(np.zeros_like(BLOCKS)), noise=10.0)
    with pytest.raises(ValueError, match="every value of observed is missing"):
        restore(np.full((8, 8), np.nan), Identity(), noise=10.0)
    with pytest.raises(ValueError, match="every value of observed is missing"):
        restore(np.where(missing(), np.nan, NOISY), Mask(missing()), noise=10.0)


def test_missing_pixels_under_a_blur_are_filled_in():
    operator = convolution(blur.box(3), (36, 40))
    truth = np.kron([[20.0, 180.0], [120.0, 60.0]], np.ones((18, 20)))
    rng = np.random.default_rng(0)
    observed = np.asarray(operator.apply(jnp.asarray(truth))) + 2 * rng.standard_normal((36, 40))
    observed[rng.random((36, 40)) < 0.2] = np.nan
    found = restore(observed, operator, noise=2.0, num_steps=150, maximise=False)
    assert np.std(found.mean - truth) < 8
    absent = np.where(missing(), np.nan, NOISY)
    with pytest.raises(ValueError, match="cannot be restored together with a blur"):
        deconvolve(absent, "box:3", noise=10.0)


# Axes and arguments #


def test_negative_axes_are_the_same_axes():
    colour = np.stack([NOISY, NOISY / 2, 255 - NOISY], axis=2)
    for axes, same in (((0, -2), (0, 1)), ((-3, -2), (0, 1)), ((0, -1), (0, 2))):
        one, other = (tv_model(Identity(), colour, 10.0, axes=given) for given in (axes, same))
        assert float(one.nonsmooth.degrees) == float(other.nonsmooth.degrees)
    with pytest.raises(ValueError, match="axes must be different axes of an x with 2 axes"):
        tv_model(Identity(), NOISY, 10.0, axes=(0, -2))
    with pytest.raises(ValueError, match="axes must be"):
        tv_model(Identity(), NOISY, 10.0, axes=(0, 2))


def test_a_channel_axis_that_is_not_there_is_refused():
    for estimator in (TVDenoiser(10.0, channel_axis=2), TVDeconvolution("box:3", channel_axis=2)):
        with pytest.raises(ValueError, match="channel_axis must be an axis of the image"):
            estimator.fit(NOISY)
    with pytest.raises(ValueError, match="channel_axis must be an axis"):
        estimate_noise(NOISY, 2)
    with pytest.raises(TypeError, match="channel_axis must be an integer"):
        TVDenoiser(10.0, channel_axis="last").fit(NOISY)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"operator": 3}, TypeError, "operator must be one of pipla.operators"),
        ({"seed": "a"}, TypeError, "seed must be an integer"),
        ({"seed": 10**23}, ValueError, "seed must be at most"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"num_particles": None}, TypeError, "num_particles must be an integer"),
        ({"axes": 0.5}, TypeError, "axes must be a tuple"),
        ({"isotropic": 0.5}, TypeError, "isotropic must be True or False"),
        ({"noise": np.ones(BLOCKS.shape)}, ValueError, "noise must be a single number"),
        ({"noise": 1e-30}, ValueError, "smaller than the rounding error"),
        ({"start": np.zeros(3)}, ValueError, "start must have the shape of x"),
    ],
)
def test_odd_arguments_are_named(arguments, error, words):
    given = {"operator": Identity(), "observed": NOISY, "noise": 10.0} | arguments
    with pytest.raises(error, match=words):
        restore(**given)


# Noise that cannot be learned (E17) #


def test_the_noise_of_an_image_without_blur_is_estimated():
    for operator in (Identity(), Mask(~missing(0.2))):
        with pytest.warns(IdentifiabilityWarning, match="cannot be learned.*estimated"):
            found = restore(NOISY, operator, noise=None, num_steps=60, maximise=False)
        assert found.noise_source == "estimated"
        assert found.noise == pytest.approx(10, rel=0.35)  # .5 to 1.5 when it was learned
        assert set(found.result.theta) == {"strength"}
    with pytest.warns(IdentifiabilityWarning):
        estimator = TVDenoiser("learn", num_steps=30).fit(NOISY)
    assert estimator.noise_ == pytest.approx(estimate_noise(NOISY))


def test_the_noise_of_a_signal_and_of_a_blurred_image_is_learned():
    signal = np.repeat([0.0, 40.0, 10.0], 30) + np.random.default_rng(0).standard_normal(90)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = restore(signal, Identity(), noise=None, num_steps=60, maximise=False)
        assert found.noise_source == "learned"
        rows = restore(signal[:, None], Identity(), noise=None, num_steps=60, maximise=False)
        assert rows.noise_source == "learned"
        warnings.simplefilter("ignore", MisfitWarning)  # this image is not blurred
        blurred = deconvolve(NOISY, "box:3", noise=None, num_steps=60, maximise=False)
    assert blurred.noise_source == "learned"
    assert set(blurred.result.theta) == {"strength", "noise"}
    assert (
        restore(NOISY, Identity(), noise=10.0, num_steps=6, maximise=False).noise_source == "given"
    )


def test_noise_is_estimated_from_the_pixels_that_are_seen():
    rng = np.random.default_rng(0)
    noisy = np.kron(BLOCKS, np.ones((3, 3))) + 8 * rng.standard_normal((72, 90))
    noisy[rng.uniform(size=noisy.shape) < 0.3] = np.nan
    assert estimate_noise(noisy) == pytest.approx(8, rel=0.15)
    signal = np.repeat([0.0, 90.0], 200) + 3 * rng.standard_normal(400)
    signal[::17] = np.nan
    assert estimate_noise(signal) == pytest.approx(3, rel=0.3)


def test_a_clean_image_of_two_levels_has_no_noise_to_estimate():
    two = np.kron([[0.0, 1.0], [1.0, 0.0]], np.ones((8, 8)))
    with pytest.raises(ValueError, match="noise cannot be estimated"):
        estimate_noise(two)
