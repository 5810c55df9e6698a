"""Image files: every depth is read back, bad files give one clear sentence."""

import numpy as np
import png
import pytest
import tifffile
from PIL import Image, ImageOps

from pipla import _files
from pipla.imaging.io import as_image, read_image, write_image

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY16 = RNG.integers(0, 65536, (5, 7), dtype=np.uint16)
COLOUR16 = RNG.integers(0, 65536, (5, 7, 3), dtype=np.uint16)
DEEP = {"grey": GREY, "colour": COLOUR, "grey16": GREY16, "colour16": COLOUR16}
FLOATS = {
    "float32": RNG.normal(size=(5, 7)).astype(np.float32),
    "float64": RNG.uniform(size=(5, 7, 3)),
}


def save_png(path, array):
    if array.ndim == 3 and array.dtype == np.uint16:
        kind = {2: "LA;16", 3: "RGB;16", 4: "RGBA;16"}[array.shape[2]]
        png.from_array(array.reshape(len(array), -1), kind).save(path)
    else:
        Image.fromarray(array).save(path)
    return path


def opaque(array, alpha=None):
    full = np.iinfo(array.dtype).max if alpha is None else alpha
    layers = array if array.ndim == 3 else array[..., None]
    return np.concatenate([layers, np.full((*array.shape[:2], 1), full, array.dtype)], axis=2)


# In. #


@pytest.mark.parametrize("name", DEEP)
def test_png_of_every_depth(tmp_path, name):
    array = DEEP[name]
    image = read_image(save_png(tmp_path / "a.png", array))
    np.testing.assert_array_equal(image.pixels, array)
    assert image.pixels.dtype == np.float64
    assert image.depth == array.dtype
    assert image.limits == (0, np.iinfo(array.dtype).max)


@pytest.mark.parametrize("name", [*DEEP, *FLOATS])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiff_of_every_depth(tmp_path, name, compression):
    array = (DEEP | FLOATS)[name]
    colours = "rgb" if array.ndim == 3 else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", array, photometric=colours, compression=compression)
    image = read_image(tmp_path / "a.tif")
    np.testing.assert_array_equal(image.pixels, array)
    assert image.depth == array.dtype


@pytest.mark.parametrize("name", [*DEEP, *FLOATS])
def test_npy_of_every_depth(tmp_path, name):
    array = (DEEP | FLOATS)[name]
    np.save(tmp_path / "a.npy", array)
    image = read_image(str(tmp_path / "a.npy"))
    np.testing.assert_array_equal(image.pixels, array)
    assert image.depth == array.dtype


def test_floats_say_what_is_black_and_white():
    assert as_image(np.array([[0.0, 0.5], [0.1, 0.2]])).limits == (0, 1)
    assert as_image(np.array([[-3.0, 0.5], [0.1, 20.0]])).limits == (-3, 20)


def test_other_integers_are_read_as_floats():
    image = as_image(np.array([[-3, 70_000], [0, 1]]))
    assert (image.depth, image.limits) == ("float64", (-3, 70_000))
    assert as_image(GREY.astype(">u2")).depth == "uint16"
    assert as_image(GREY.astype(np.float16)).depth == "float32"


def test_the_content_decides_not_the_name(tmp_path):
    save_png(tmp_path / "a.png", GREY).rename(tmp_path / "a.tif")
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif").pixels, GREY)


def test_one_bit_becomes_black_and_white(tmp_path):
    bits = GREY > 128
    Image.fromarray(bits).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png").pixels, 255 * bits)
    np.testing.assert_array_equal(as_image(bits).pixels, 255 * bits)


def test_a_palette_becomes_its_colours(tmp_path):
    Image.fromarray(COLOUR).quantize(8).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        wanted = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(read_image(tmp_path / "a.png").pixels, wanted)
    Image.fromarray(GREY).convert("P").save(tmp_path / "grey.png")
    np.testing.assert_array_equal(read_image(tmp_path / "grey.png").pixels, GREY)
    Image.fromarray(COLOUR).quantize(8).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif").pixels, wanted)


def test_unusual_tiffs(tmp_path):
    path = tmp_path / "a.tif"
    planes = np.moveaxis(COLOUR16, 2, 0)
    tifffile.imwrite(path, planes, photometric="rgb", planarconfig="separate")
    np.testing.assert_array_equal(read_image(path).pixels, COLOUR16)
    tifffile.imwrite(path, GREY, photometric="miniswhite")
    np.testing.assert_array_equal(read_image(path).pixels, 255 - GREY)
    Image.fromarray(COLOUR).save(path, compression="tiff_lzw")
    np.testing.assert_array_equal(read_image(path).pixels, COLOUR)


def test_jpeg_is_read(tmp_path):
    for array, name in ((GREY, "grey.jpg"), (COLOUR, "colour.jpeg")):
        smooth = np.asarray(Image.fromarray(array).resize((32, 24)))
        Image.fromarray(smooth).save(tmp_path / name, quality=100)
        image = read_image(tmp_path / name)
        assert image.depth == "uint8"
        with Image.open(tmp_path / name) as stored:
            np.testing.assert_array_equal(image.pixels, np.asarray(stored))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "lzw.tif"])
def test_a_rotated_photograph_is_turned_upright(tmp_path, orientation, ending):
    path = tmp_path / f"a.{ending}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    plain = np.kron(COLOUR, np.ones((8, 8, 1), np.uint8))
    if ending == "tif":
        tifffile.imwrite(
            path, plain, photometric="rgb", extratags=[(0x0112, "H", 1, orientation, True)]
        )
    else:
        options = {"compression": "tiff_lzw"} if ending == "lzw.tif" else {}
        Image.fromarray(plain).save(path, exif=exif, **options)
    with Image.open(path) as stored:
        pixels = np.asarray(ImageOps.exif_transpose(stored))
    assert pixels.shape == (plain.shape if orientation < 5 else (56, 40, 3))
    np.testing.assert_array_equal(read_image(path).pixels, pixels)


def test_an_image_too_large_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    Image.new("L", (3000, 2000)).save(tmp_path / "a.png")
    Image.new("L", (3000, 2000)).save(tmp_path / "a.jpg")
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((2000, 3000), np.uint8), compression="zlib")
    np.save(tmp_path / "a.npy", np.zeros((2000, 3000), np.uint8))
    monkeypatch.setattr("pipla.imaging.io._as_array", None)
    for ending in ("png", "jpg", "tif", "npy"):
        with pytest.raises(ValueError, match=r"2000 × 3000 = 6000000 pixels.*limit of 1000"):
            read_image(tmp_path / f"a.{ending}", max_pixels=1000)


def test_missing_pixels_are_read_where_they_are_allowed(tmp_path):
    pixels = np.array([[1.0, np.nan], [3.0, 4.0]])
    np.save(tmp_path / "a.npy", pixels)
    image = read_image(tmp_path / "a.npy", missing=True)
    np.testing.assert_array_equal(image.pixels, pixels)
    assert image.limits == (1, 4)
    with pytest.raises(ValueError, match="every pixel is missing"):
        as_image(np.full((2, 2), np.nan), missing=True)


@pytest.mark.parametrize("name", DEEP)
def test_opaque_transparency_is_dropped_with_a_warning(tmp_path, name):
    path = save_png(tmp_path / "a.png", opaque(DEEP[name]))
    with pytest.warns(UserWarning, match="opaque everywhere and is dropped"):
        image = read_image(path)
    np.testing.assert_array_equal(image.pixels, DEEP[name])


@pytest.mark.parametrize("name", DEEP)
def test_real_transparency_is_an_error(tmp_path, name):
    path = save_png(tmp_path / "a.png", opaque(DEEP[name], alpha=9))
    with pytest.raises(ValueError, match=r"a\.png.*not opaque.*flatten it onto a background"):
        read_image(path)


def bad_files(folder):
    yield "pages.tif", "has 5 pages", lambda p: tifffile.imwrite(p, np.zeros((5, 9, 7), "u1"))
    yield "cmyk.jpg", "CMYK", lambda p: Image.new("CMYK", (4, 4)).save(p)
    yield "cmyk.tif", "SEPARATED", lambda p: Image.new("CMYK", (4, 4)).save(p)
    yield "row.npy", r"1 row\(s\) and 9", lambda p: np.save(p, np.zeros((1, 9)))
    yield "column.png", r"9 row\(s\) and 1", lambda p: Image.new("L", (1, 9)).save(p)
    yield "stack.npy", "one grey or colour image", lambda p: np.save(p, np.zeros((9, 9, 9)))
    yield "line.npy", "one grey or colour image", lambda p: np.save(p, np.zeros(9))
    yield "words.npy", "dtype <U1", lambda p: np.save(p, np.full((3, 3), "a"))
    yield "complex.npy", "complex128", lambda p: np.save(p, np.zeros((3, 3), complex))
    yield "objects.npy", "allow_pickle", lambda p: np.save(p, np.full((3, 3), None), True)
    yield "archive.npy", "an archive", lambda p: p.write_bytes(b"PK\x03\x04rest")
    yield "text.png", "not PNG, JPEG, TIFF or NPY", lambda p: p.write_text("no image")
    yield "empty.png", r"is empty \(0 bytes\)", lambda p: p.touch()
    yield "folder", "is not a file", lambda p: p.mkdir()
    whole = save_png(folder / "whole.png", RNG.integers(0, 256, (64, 64), dtype=np.uint8))
    yield "half.png", "damaged", lambda p: p.write_bytes(whole.read_bytes()[:1500])
    deep = save_png(folder / "deep.png", COLOUR16).read_bytes()
    yield "half16.png", "damaged", lambda p: p.write_bytes(deep[:100])
    yield "head.png", "damaged", lambda p: p.write_bytes(deep[:10])
    Image.fromarray(COLOUR).resize((64, 64)).save(folder / "whole.jpg")
    jpeg = (folder / "whole.jpg").read_bytes()
    yield "half.jpg", "damaged", lambda p: p.write_bytes(jpeg[: len(jpeg) // 2])
    yield "head.jpg", "damaged", lambda p: p.write_bytes(jpeg[:8])
    tifffile.imwrite(folder / "whole.tif", GREY16)
    tail = (folder / "whole.tif").read_bytes()
    yield "half.tif", "damaged", lambda p: p.write_bytes(tail[: len(tail) - 20])
    yield "head.tif", "damaged", lambda p: p.write_bytes(tail[:6])


def test_bad_files_have_one_clear_sentence(tmp_path):
    for name, words, make in bad_files(tmp_path):
        make(tmp_path / name)
        with pytest.raises(ValueError, match=words) as caught:
            read_image(tmp_path / name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no image.*nowhere"):
        read_image(tmp_path / "nowhere.png")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_pixels_that_are_no_numbers_are_counted_and_located(bad):
    pixels = np.ones((4, 5))
    pixels[2, 3] = pixels[3, 0] = bad
    with pytest.raises(ValueError, match=r"2 pixel value\(s\).*among 20, the first at \(2, 3\)"):
        as_image(pixels)


# Out. #


@pytest.mark.parametrize("name", DEEP)
def test_what_is_written_is_read_again(tmp_path, name):
    array = DEEP[name]
    paths = write_image(tmp_path, "restored", array, str(array.dtype))
    assert [path.name for path in paths] == ["restored.npy", "restored.png"]
    for path in paths:
        np.testing.assert_array_equal(read_image(path).pixels, array)
    assert read_image(paths[1]).depth == array.dtype
    assert np.load(paths[0]).dtype == np.float32


def test_only_the_png_is_clipped_and_rounded(tmp_path):
    pixels = np.array([[-3.0, 300.0], [1.4, 1.6]])
    numbers, shown = write_image(tmp_path, "a", pixels, "uint8")
    np.testing.assert_array_equal(np.load(numbers), pixels.astype(np.float32))
    np.testing.assert_array_equal(read_image(shown).pixels, [[0, 255], [1, 2]])


@pytest.mark.parametrize(
    ("pixels", "limits", "levels"),
    [
        ([[0.0, 1.0], [0.5, 0.2]], None, [[0, 65535], [32768, 13107]]),
        ([[-2.0, 2.0], [0.0, 1.0]], None, [[0, 65535], [32768, 49151]]),
        ([[-2.0, 2.0], [0.0, 1.0]], (0, 2), [[0, 65535], [0, 32768]]),
        ([[7.0, 7.0], [7.0, 7.0]], None, [[0, 0], [0, 0]]),
    ],
    ids=["unit", "own range", "given range", "constant"],
)
def test_floats_are_shown_between_their_limits(tmp_path, pixels, limits, levels):
    numbers, shown = write_image(tmp_path, "a", np.array(pixels), "float64", limits)
    np.testing.assert_array_equal(np.load(numbers), pixels)
    np.testing.assert_array_equal(read_image(shown).pixels, levels)


def test_what_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ValueError, match="depth must be one of"):
        write_image(tmp_path, "a", GREY, "int8")
    with pytest.raises(ValueError, match="'a' are not all finite"):
        write_image(tmp_path, "a", np.full((2, 2), np.nan), "uint8")
    with pytest.raises(ValueError, match="pixels must have shape"):
        write_image(tmp_path, "a", np.zeros((2, 2, 2)), "uint8")
    assert not list(tmp_path.iterdir())


# A whole folder. #

NAMES = {"a.txt", "b.txt"}


def fill(path, text="new", disturb=lambda: None):
    with _files.whole_folder(path, NAMES, "ours") as fresh:
        for name in sorted(NAMES):
            (fresh / name).write_text(text)
            disturb()


def test_a_folder_is_written_and_replaced(tmp_path):
    for text in ("old", "new"):
        fill(tmp_path / "deep" / "out", text)
        assert (tmp_path / "deep" / "out" / "a.txt").read_text() == text
    (tmp_path / "empty").mkdir()
    fill(tmp_path / "empty")
    assert {file.name for file in (tmp_path / "deep").iterdir()} == {"out"}


def test_a_block_that_fails_changes_nothing(tmp_path):
    def power_cut():
        raise RuntimeError("power cut")

    fill(tmp_path / "out", "old")
    for target in ("out", "other"):
        with pytest.raises(RuntimeError, match="power cut"):
            fill(tmp_path / target, "new", power_cut)
    assert (tmp_path / "out" / "a.txt").read_text() == "old"
    assert {file.name for file in tmp_path.iterdir()} == {"out"}


@pytest.mark.parametrize("foreign", [["theirs.txt"], ["a.txt"], ["a.txt", "b.txt", "theirs.txt"]])
def test_a_strangers_folder_is_refused_before_work(tmp_path, foreign):
    for name in foreign:
        (tmp_path / name).write_text("theirs")
    with pytest.raises(FileExistsError, match="is not ours; choose another"):
        _files.claim(tmp_path, NAMES, "ours")
    with pytest.raises(FileExistsError):
        fill(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(foreign)


def test_files_and_links_are_not_replaced(tmp_path):
    (tmp_path / "file").touch()
    fill(tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            _files.claim(tmp_path / name, NAMES, "ours")
    with pytest.raises(OSError, match="cannot be written"):
        _files.claim(tmp_path / "file" / "below", NAMES, "ours")


def test_a_stranger_who_comes_in_the_meantime_stays(tmp_path):
    def come():
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "theirs").touch()

    with pytest.raises(FileExistsError):
        fill(tmp_path / "out", disturb=come)
    assert [file.name for file in tmp_path.rglob("*")] == ["out", "theirs"]
