"""Distances between images."""

import math

import numpy as np
import pytest
from skimage.data import camera

from pipla.imaging import metrics


@pytest.fixture(scope="module")
def truth():
    return camera()[100:196, 200:296].astype(float)


@pytest.fixture(scope="module")
def y(truth):
    return truth + np.random.default_rng(0).standard_normal(truth.shape)


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
