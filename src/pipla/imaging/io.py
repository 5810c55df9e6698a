"""Image files: PNG, JPEG, TIFF and NPY are read; PNG and NPY are written, on the input's scale."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipla import _checks, _files
from pipla._extras import MissingExtraError, extra

#: The dtypes that an image keeps; any other real dtype is read as float64.
DEPTHS = ("uint8", "uint16", "float32", "float64")
_FORMATS = {b"\x89PNG": "PNG", b"\x93NUM": "NPY", b"PK\x03\x04": "NPZ"}
_FORMATS |= dict.fromkeys((b"\xff\xd8\xff" + bytes([end]) for end in range(256)), "JPEG")
_FORMATS |= dict.fromkeys((b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"), "TIFF")


class Image(NamedTuple):
    """An image as an array of floats.

    Attributes:
        pixels: float64, of shape (rows, columns) or (rows, columns, 3), on the input's scale:
            0 to 255 for 8 bits, 0 to 65535 for 16 bits, as stored for floats.
        depth: the dtype it was stored as: `"uint8"`, `"uint16"`, `"float32"` or `"float64"`.
        limits: the values of black and white: (0, 255), (0, 65535); for floats (0, 1) if all
            pixels lie there, else their smallest and largest value.
    """

    pixels: np.ndarray
    depth: str
    limits: tuple[float, float]


def read_image(path: str | Path, *, max_pixels: int | None = None, missing: bool = False) -> Image:
    """Read a PNG, JPEG, TIFF or NPY file; its content decides which, not its name.

    * Images have 8 or 16 bits or floats, in grey or colour. 1-, 2- and 4-bit images become 8-bit
      ones. A palette is replaced by its colours, or by grey levels if it has no others. NPY arrays
      of other integers are read as float64. Three equal channels stay three channels.
    * An image that its file says to rotate or mirror (EXIF orientation) is turned upright.
    * A second or fourth channel is transparency. It is dropped with a warning if it is opaque
      everywhere; otherwise it is an error, because the background is unknown.
    * It is an error if the file has several pages, if the image has only one row or column (total
      variation needs two of each), or if a pixel is NaN or infinite.

    Arguments:
        path: the file.
        max_pixels: refuse an image with more rows × columns, before it is decoded.
        missing: NaN is allowed, and means a missing pixel.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file does not hold such an image; the message says why and what to do.
        MissingExtraError: reading this format needs a package of `pipla[imaging]`.
    """
    path = _files.checked_path("path", path)
    if max_pixels is not None:
        max_pixels = _checks.integer("max_pixels", max_pixels, least=1, most=2**63)
    if not path.exists():
        raise FileNotFoundError(f"there is no image {str(path)!r}.")
    if not path.is_file():
        raise ValueError(f"image {str(path)!r} is not a file; give a PNG, JPEG, TIFF or NPY file.")
    try:
        with path.open("rb") as file:
            format = _FORMATS.get(file.read(4))
    except OSError as error:
        raise ValueError(f"image {str(path)!r} cannot be read: {error.strerror}.") from error
    if format == "NPZ":
        raise ValueError(f"image {str(path)!r} is an archive (npz?); save the one array as NPY.")
    if format is None:
        if path.stat().st_size == 0:
            raise ValueError(f"image {str(path)!r} is empty (0 bytes).")
        raise ValueError(f"image {str(path)!r} is not PNG, JPEG, TIFF or NPY; convert it to one.")
    readers = {"PNG": _read_png, "JPEG": _read_jpeg, "TIFF": _read_tiff, "NPY": _read_npy}
    try:
        raw = readers[format](path, max_pixels)
    except _Refused as error:
        raise ValueError(f"image {str(path)!r} {error}") from None
    except MissingExtraError:
        raise
    except Exception as error:  # decoders raise errors of any type on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"image {str(path)!r} cannot be read as {format}, it may be damaged: {reason}"
        ) from error
    if raw.dtype.kind not in "buif":
        raise ValueError(f"image {str(path)!r} has dtype {raw.dtype}; give real numbers.")
    return as_image(raw, f"image {str(path)!r}", missing=missing)


def as_image(array: Any, name: str = "image", *, missing: bool = False) -> Image:
    """Convert an array to an `Image`, with the checks of `read_image`.

    Arguments:
        array: of shape (rows, columns) or (rows, columns, channels).
        name: what error messages call it.
        missing: NaN is allowed, and means a missing pixel.

    >>> as_image(np.array([[0, 255], [128, 7]], np.uint8)).limits
    (0.0, 255.0)
    """
    raw = _checks.on_host(name, array)
    _checks.boolean("missing", missing)
    if raw.dtype == bool:
        raw = raw * np.uint8(255)
    depth = "float32" if raw.dtype == np.float16 else str(raw.dtype)
    depth = depth if depth in DEPTHS else "float64"
    if raw.ndim not in (2, 3) or (raw.ndim == 3 and raw.shape[2] not in (1, 2, 3, 4)):
        raise ValueError(
            f"{name} has shape {raw.shape}; give (rows, columns) or (rows, columns, 3): one grey "
            "or colour image at a time."
        )
    if min(raw.shape[:2]) < 2:
        raise ValueError(
            f"{name} has {raw.shape[0]} row(s) and {raw.shape[1]} column(s); total variation of an "
            "image needs at least two of each."
        )
    pixels = raw.astype(np.float64)
    bad = np.argwhere(np.isinf(pixels) if missing else ~np.isfinite(pixels))
    if len(bad):
        raise ValueError(
            f"{name} has {len(bad)} pixel value(s) that are NaN or infinite among {pixels.size}, "
            f"the first at {tuple(map(int, bad[0]))}; replace them first."
        )
    if np.isnan(pixels).all():
        raise ValueError(f"{name}: every pixel is missing (NaN); there is nothing to restore.")
    pixels = _without_alpha(pixels, depth, name)
    return Image(pixels, depth, _limits(pixels, depth))


def write_image(
    folder: str | Path,
    name: str,
    pixels: np.ndarray,
    depth: str,
    limits: tuple[float, float] | None = None,
) -> tuple[Path, Path]:
    """Write `name.npy` and `name.png` into an existing folder.

    The NPY file holds the exact values: float64 for depth `"float64"`, otherwise float32 (which
    resolves 16-bit levels to 1/256). The PNG is for display: clipped to `limits`, scaled from
    black to white and rounded, to 8 bits for `"uint8"` and to 16 otherwise.

    Arguments:
        folder: where to write.
        name: the name of both files, without extension.
        pixels: (rows, columns) or (rows, columns, 3), on the input's scale.
        depth: the depth of the input, `Image.depth`.
        limits: the values of black and white; by default those of the depth, and for floats
            (0, 1) or the range of `pixels`, as in `Image`. Give the input's `Image.limits` to make
            a restored float image comparable with it.

    Returns:
        The paths of the NPY and of the PNG file.
    """
    place = _files.checked_path("folder", folder)
    if not isinstance(name, str) or Path(name).name != name or "\0" in name:
        raise ValueError(f"name must be that of a file, without a folder; got {name!r}.")
    if not place.is_dir():
        raise FileNotFoundError(f"folder: there is no folder {str(place)!r}.")
    _checks.choice("depth", depth, DEPTHS)
    pixels = _checks.on_host("pixels", pixels).astype(np.float64)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ValueError(
            f"pixels must have shape (rows, columns) or (rows, columns, 3), got {pixels.shape}."
        )
    if not np.isfinite(pixels).all():
        raise ValueError(f"pixels of {name!r} are not all finite; nothing was written.")
    low, high = _limits(pixels, depth) if limits is None else _checked_limits(limits)
    white, dtype = (255, np.uint8) if depth == "uint8" else (65535, np.uint16)
    span = high - low if high > low else 1.0  # a constant image is black
    levels = np.rint(white * np.clip((pixels - low) / span, 0, 1)).astype(dtype)
    paths = place / f"{name}.npy", place / f"{name}.png"
    _write_png(paths[1], levels)
    np.save(paths[0], pixels.astype(np.float64 if depth == "float64" else np.float32))
    return paths


class _Refused(Exception):  # noqa: N818 - the end of a sentence, turned into a ValueError
    """Why an intact file is not an image that can be read."""


def _limits(pixels: np.ndarray, depth: str) -> tuple[float, float]:
    if depth.startswith("uint"):
        return 0.0, float(np.iinfo(depth).max)
    low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _checked_limits(limits: Any) -> tuple[float, float]:
    """The values of black and white."""
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        raise TypeError(f"limits must be the values of black and white, got {limits!r}.")
    return _checks.real("limits[0]", limits[0]), _checks.real("limits[1]", limits[1])


def _without_alpha(pixels: np.ndarray, depth: str, name: str) -> np.ndarray:
    channels = 0 if pixels.ndim == 2 else pixels.shape[2]
    if channels in (2, 4):
        opaque = float(np.iinfo(depth).max) if depth.startswith("uint") else 1.0
        if not np.all(pixels[..., -1] == opaque):
            raise ValueError(
                f"{name} has {channels} channels, and the last one, transparency, is not opaque "
                f"({opaque:g}) everywhere; flatten it onto a background, or remove that channel."
            )
        warnings.warn(
            f"{name}: its transparency is opaque everywhere and is dropped.", stacklevel=4
        )
        pixels = pixels[..., :-1]
    return pixels[..., 0] if channels in (1, 2) else pixels


def _limit(rows: int, columns: int, most: int | None) -> None:
    if most is not None and rows * columns > most:
        raise _Refused(
            f"has {rows} × {columns} = {rows * columns} pixels, more than the limit of {most}; "
            "crop it or scale it down, or raise the limit."
        )


#: How to turn an image upright, for the values of the EXIF orientation; 1 is upright.
_UPRIGHT = {
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: np.swapaxes(image, 0, 1),
    6: lambda image: np.swapaxes(image, 0, 1)[:, ::-1],
    7: lambda image: np.swapaxes(image, 0, 1)[::-1, ::-1],
    8: lambda image: np.swapaxes(image, 0, 1)[::-1],
}
_ORIENTATION = 0x0112


def _upright(raw: np.ndarray, orientation: Any) -> np.ndarray:
    turn = _UPRIGHT.get(orientation)
    return raw if turn is None else turn(raw)


def _read_npy(path: Path, most: int | None) -> np.ndarray:
    if most is not None:
        shape = np.load(path, allow_pickle=False, mmap_mode="r").shape  # reads the header only
        if len(shape) > 1:
            _limit(shape[0], shape[1], most)
    return np.load(path, allow_pickle=False)


def _read_jpeg(path: Path, most: int | None) -> np.ndarray:
    with extra("imaging", "reading JPEG files"):
        import PIL.Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)  # `most` is the limit
        with PIL.Image.open(path, formats=["JPEG"]) as image:
            _limit(image.height, image.width, most)
            return _upright(_as_array(image), image.getexif().get(_ORIENTATION))


def _read_png(path: Path, most: int | None) -> np.ndarray:
    with path.open("rb") as file:
        head = file.read(26)
    _limit(int.from_bytes(head[20:24]), int.from_bytes(head[16:20]), most)
    if head[24] == 16 and head[25] != 0:  # Pillow would cut 16-bit colour down to 8 bits
        with extra("imaging", "reading 16-bit colour PNG files"):
            import png

        with path.open("rb") as file:
            columns, rows, values, details = png.Reader(file=file).asDirect()
            raw = np.stack([np.frombuffer(row, np.uint16) for row in values])
            return raw.reshape(rows, columns, details["planes"])
    with extra("imaging", "reading PNG files"):
        import PIL.Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)  # `most` is the limit
        with PIL.Image.open(path, formats=["PNG"]) as image:
            frames = getattr(image, "n_frames", 1)
            if frames > 1:
                raise _Refused(f"has {frames} frames; save the one you want on its own.")
            return _upright(_as_array(image), image.getexif().get(_ORIENTATION))


def _as_array(image: Any) -> np.ndarray:
    """The grey levels or colours of a Pillow image."""
    if "transparency" in image.info and image.mode in ("L", "RGB", "P"):
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    elif image.mode == "P":
        image = image.convert("RGB")
        colours = np.asarray(image)
        if np.all(colours == colours[..., :1]):
            return colours[..., 0]
    elif image.mode == "1":
        image = image.convert("L")
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I;16", "I;16B", "I", "F"):
        raise _Refused(f"has colours of kind {image.mode}; convert it to grey or RGB.")
    return np.asarray(image)


def _read_tiff(path: Path, most: int | None) -> np.ndarray:
    with extra("imaging", "reading TIFF files"):
        import tifffile

    with tifffile.TiffFile(path) as file:
        page: Any = file.pages[0]
        series = file.series[0]
        if len(file.pages) > 1 or len(file.series) > 1:
            raise _Refused(
                f"has {len(file.pages)} pages; save the one you want as a file of its own."
            )
        _limit(page.imagelength, page.imagewidth, most)
        tag = page.tags.get(_ORIENTATION)
        orientation = None if tag is None else int(tag.value)
        colours = page.photometric.name
        if colours in ("MINISBLACK", "MINISWHITE", "RGB"):
            try:
                raw = series.asarray()
            except ValueError as error:
                if "imagecodecs" not in str(error):
                    raise
                if page.bitspersample > 8 and page.samplesperpixel > 1:
                    raise _Refused(  # Pillow would cut it down to 8 bits
                        f"is {page.bitspersample}-bit colour with an unsupported compression; save "
                        "it uncompressed."
                    ) from None
                return _read_packed_tiff(path)
            if "S" in series.axes:  # channels may be stored one after the other
                raw = np.moveaxis(raw, series.axes.index("S"), -1)
            if colours == "MINISWHITE" and raw.dtype.kind in "bu":
                raw = ~raw
            return _upright(raw, orientation)
    if colours == "PALETTE":
        return _read_packed_tiff(path)
    raise _Refused(f"has colours of kind {colours}; convert it to grey or RGB.")


def _read_packed_tiff(path: Path) -> np.ndarray:
    """A TIFF with a palette, or a compression that tifffile alone cannot decode (LZW, JPEG)."""
    with extra("imaging", "reading TIFF files"):
        import PIL.Image

    with PIL.Image.open(path, formats=["TIFF"]) as image:
        return _as_array(image)  # Pillow turns a TIFF upright while it decodes it


def _write_png(path: Path, levels: np.ndarray) -> None:
    if levels.ndim == 3 and levels.dtype == np.uint16:  # Pillow has no 16-bit colour
        with extra("imaging", "writing 16-bit colour PNG files"):
            import png

        png.from_array(levels.reshape(len(levels), -1), "RGB;16").save(path)
    else:
        with extra("imaging", "writing PNG files"):
            import PIL.Image

        PIL.Image.fromarray(levels).save(path)
