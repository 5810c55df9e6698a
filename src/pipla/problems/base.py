"""What a problem is: a model with data, a start, and the answer where it is known."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import _checks
from pipla.models.model import Model

#: The largest number of elements that a synthetic problem draws.
MOST = 10**8


class Problem(NamedTuple):
    """A model with data.

    Attributes:
        name: the name in tables and figures.
        model: the model with its data.
        theta: where theta starts.
        dimension: the dimension of x.
        truth: the theta that generated the data, if known.
        maximiser: the exact maximiser of the marginal likelihood, where it can be computed.
    """

    name: str
    model: Model
    theta: PyTree
    dimension: int
    truth: float | None
    maximiser: float | None

    def particles(
        self, key: Key[Array, ""], num_particles: int, theta: PyTree | None = None
    ) -> Array:
        """Particles to start from: N(theta, 1) in every coordinate, as in the paper."""
        num_particles = _checks.integer("num_particles", num_particles, least=1)
        _checks.random_key("key", key)
        centre = self.theta
        if theta is not None:
            centre = _checks.floating("theta", theta)
            if not isinstance(centre, jax.Array) or centre.shape != ():
                raise ValueError("theta must be a single number, the mean of the particles.")
            centre = centre.astype(jnp.result_type(float))
        noise = jax.random.normal(key, (num_particles, self.dimension), jnp.result_type(float))
        return centre + noise


def checked_noise(noise: float) -> float:
    """The standard deviation of noise; its square and the inverse of that are finite."""
    found = _checks.real("noise", noise)
    if not 1e-100 <= found <= 1e100:
        raise ValueError(f"noise must be between 1e-100 and 1e100, got {found}.")
    return found


def find_data(name: str) -> dict[str, np.ndarray]:
    """The arrays of a data file; see `data_path`."""
    return read_arrays(data_path(name))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file, or an error in one sentence."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{str(path)!r} cannot be read as arrays: {said}") from error


def data_path(name: str) -> Path:
    """The path of a data file in the folder in `$PIPLA_DATA`."""
    folder = os.environ.get("PIPLA_DATA")
    path = Path(folder or ".") / name
    if folder and path.is_file():
        return path
    if not folder:
        raise FileNotFoundError(
            f"{name} is not shipped with pipla: set PIPLA_DATA to the folder that holds it."
        )
    raise FileNotFoundError(f"PIPLA_DATA = {folder!r} holds no file {name}.")
