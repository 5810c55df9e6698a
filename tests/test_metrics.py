"""Distances between images, and the restorations they are used to compare."""

import math

import numpy as np
import pytest
from scipy.ndimage import convolve

from pipla.experiments.images import peers
from pipla.imaging import metrics
from pipla.problems.images import find_image

KERNEL = np.full((5, 5), 1 / 25)


def blur(x):
    return convolve(x, KERNEL, mode="wrap")


@pytest.fixture(scope="module")
def truth():
    return find_image("camera")[100:196, 200:296]


@pytest.fixture(scope="module")
def y(truth):
    return blur(truth) + np.random.default_rng(0).standard_normal(truth.shape)


def test_errors_of_a_known_difference():
    truth = np.zeros((8, 8))
    image = truth.copy()
    image[0, 0] = 8.0
    assert metrics.mse(image, truth) == 1.0
    assert metrics.psnr(image, truth) == pytest.approx(20 * math.log10(255))
    assert metrics.psnr(image, truth, peak=1) == pytest.approx(0.0)


def test_equal_images_are_equal(truth):
    assert metrics.mse(truth, truth) == 0
    assert metrics.psnr(truth, truth) == math.inf
    assert metrics.ssim(truth, truth) == pytest.approx(1.0)


def test_ssim_sees_contrast_relative_to_the_peak(truth):
    dimmer = 0.5 * truth
    assert metrics.ssim(dimmer, truth) < 0.95
    one = metrics.ssim(dimmer / 255, truth / 255, peak=1)
    assert one == pytest.approx(metrics.ssim(dimmer, truth), rel=1e-6)


def test_colour_is_the_mean_of_its_channels(truth, y):
    colour = [np.stack([image] * 3, axis=2) for image in (y, truth)]
    assert metrics.ssim(*colour) == pytest.approx(metrics.ssim(y, truth))
    assert metrics.psnr(*colour) == pytest.approx(metrics.psnr(y, truth))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.psnr(np.zeros((2, 2)), np.zeros((2, 3))), "same shape"),
        (lambda: metrics.psnr(np.zeros((2, 2)), np.ones((2, 2)), peak=0), "peak must be positive"),
        (lambda: metrics.ssim(np.zeros((6, 9)), np.zeros((6, 9))), "at least 7"),
    ],
)
def test_what_cannot_be_compared_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_peers_restore_a_wrapped_blur(truth, y):
    before = metrics.psnr(y, truth)
    unsupervised = metrics.psnr(peers.unsupervised_wiener(y, KERNEL), truth)
    oracle = metrics.psnr(peers.oracle_wiener(y, KERNEL, truth), truth)
    lucy = metrics.psnr(peers.richardson_lucy(y, blur, blur), truth)
    best = metrics.psnr(peers.oracle_richardson_lucy(y, blur, blur, truth), truth)
    assert before + 1 < unsupervised <= oracle
    assert before + 1 < lucy <= best


def test_richardson_lucy_is_that_of_scikit_image_away_from_the_edges(y):
    from skimage.restoration import richardson_lucy

    theirs = richardson_lucy(y / 255, KERNEL, num_iter=4, clip=False)
    ours = peers.richardson_lucy(y / 255, blur, blur, iterations=4)
    inside = np.s_[20:-20, 20:-20]  # eight blurs of radius two
    np.testing.assert_allclose(ours[inside], theirs[inside], rtol=2e-2)


def test_reflecting_undoes_a_reflected_blur(truth):
    y = convolve(truth, KERNEL, mode="reflect")
    y = y + 0.1 * np.random.default_rng(0).standard_normal(truth.shape)
    wrapped = peers.oracle_wiener(y, KERNEL, truth)
    reflected = peers.reflecting(
        lambda y, truth: peers.oracle_wiener(y, KERNEL, truth), y, truth=truth
    )
    assert reflected.shape == truth.shape
    assert metrics.psnr(reflected, truth) > metrics.psnr(wrapped, truth) + 1
