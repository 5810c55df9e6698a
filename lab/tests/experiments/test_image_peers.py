"""Restorations by other methods: Wiener filters and Richardson-Lucy."""

import numpy as np
import pytest
from scipy.ndimage import convolve

from pipla.imaging import metrics
from pipla_lab.data.images import find_image
from pipla_lab.experiments.images import peers

KERNEL = np.full((5, 5), 1 / 25)


def blur(x):
    return convolve(x, KERNEL, mode="wrap")


@pytest.fixture(scope="module")
def truth():
    return find_image("camera")[100:196, 200:296]


@pytest.fixture(scope="module")
def y(truth):
    return blur(truth) + np.random.default_rng(0).standard_normal(truth.shape)


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
