"""The images that deblurring is measured on."""

import warnings

import numpy as np
import pytest
from PIL import Image

from pipla_lab.data import find_image


def test_the_camera_man_is_always_there(monkeypatch):
    monkeypatch.delenv("PIPLA_DATA", raising=False)
    assert find_image("camera").shape == (512, 512)
    with pytest.raises(FileNotFoundError, match="set PIPLA_DATA"):
        find_image("boat")
    with pytest.raises(ValueError, match="'camera', 'boat', 'guitar'"):
        find_image("lena")


def test_images_of_the_paper_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("PIPLA_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="holds no file boat.png"):
        find_image("boat")
    grey = np.random.default_rng(0).integers(0, 256, (5, 7), dtype=np.uint8)
    Image.fromarray(grey).save(tmp_path / "boat.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(find_image("boat"), grey)
