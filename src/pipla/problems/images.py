"""The pictures that deblurring is measured on."""

from __future__ import annotations

import numpy as np

from pipla import _checks
from pipla.problems.base import data_path

#: Files in `$PIPLA_DATA`. Of two files of the guitar, the authors' notebook reads the second one.
FILES = {"boat": "boat.png", "guitar": "guitar_rezoomed.png"}


def find_picture(name: str) -> np.ndarray:
    """A grey picture, float64, 0 to 255: `"camera"`, `"boat"` (512×512) or `"guitar"` (584×238).

    The camera man comes with scikit-image and is always there; the others are the paper's and lie
    in `$PIPLA_DATA`.
    """
    _checks.choice("name", name, ("camera", *FILES))
    if name == "camera":
        from skimage.data import camera

        return camera().astype(np.float64)
    from PIL import Image

    with Image.open(data_path(FILES[name])) as file:
        return np.asarray(file.convert("L"), np.float64)
