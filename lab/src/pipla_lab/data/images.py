"""The images that deblurring is measured on."""

from __future__ import annotations

import numpy as np

from pipla.problems.base import data_path
from pipla_lab import checks

#: Files in `$PIPLA_DATA`. The authors' notebook reads this one of their two files of the guitar.
FILES = {"boat": "boat.png", "guitar": "guitar_rezoomed.png"}


def find_image(name: str) -> np.ndarray:
    """A grey image in float64, 0 to 255.

    Arguments:
        name: `"camera"` (512×512, from scikit-image), or one of the paper's images, which are read
            from the folder in `$PIPLA_DATA`: `"boat"` (512×512) and `"guitar"` (584×238).
    """
    checks.choice("name", name, ("camera", *FILES))
    if name == "camera":
        from skimage.data import camera

        return camera().astype(np.float64)
    from PIL import Image

    with Image.open(data_path(FILES[name])) as file:
        return np.asarray(file.convert("L"), np.float64)
