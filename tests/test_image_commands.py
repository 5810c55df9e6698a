"""`pipla deblur`, `denoise` and `inpaint`: a result, or one clear line and nothing written."""

import dataclasses
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from typer.testing import CliRunner

import pipla
from pipla.cli import app as cli
from pipla.cli import images
from pipla.cli._alive import sign_of_life
from pipla.diagnostics import ConvergenceWarning

# The photograph is not blurred, and `deblur` says so.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pipla.imaging.MisfitWarning"),
]

BLOCKS = np.kron([[20.0, 180.0, 90.0], [120.0, 40.0, 200.0]], np.ones((12, 10)))
NOISY = BLOCKS + 10 * np.random.default_rng(0).standard_normal(BLOCKS.shape)
BYTES = np.clip(np.rint(NOISY), 0, 255).astype(np.uint8)
COLOUR = np.stack([BYTES, BYTES[::-1], 255 - BYTES], axis=2)
COMMANDS = {
    "deblur": ("--blur", "box:3"),
    "denoise": (),
    "inpaint": ("--mask", "mask.png"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a photograph and a mask."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(BYTES).save("photo.png")
    mask = np.zeros(BLOCKS.shape, np.uint8)
    mask[4:7, 5:12] = 255
    Image.fromarray(mask).save("mask.png")
    return tmp_path


def call(*words):
    """A command with few steps, because the images are not looked at."""
    if words[0] in COMMANDS and "--steps" not in words:
        words = (*words, "--steps", 30)
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def one_line(said):
    assert said.exit_code == 2, said.output
    assert said.stdout == ""
    (line,) = said.stderr.splitlines()
    assert line.startswith("pipla: ")
    return line


def exif(orientation):
    found = Image.Exif()
    found[0x0112] = orientation
    return found


GOOD = {
    "grey.png": lambda p: Image.fromarray(BYTES).save(p),
    "colour.png": lambda p: Image.fromarray(COLOUR).save(p),
    "photo.jpg": lambda p: Image.fromarray(COLOUR).save(p, quality=95),
    "deep.tif": lambda p: tifffile.imwrite(p, BYTES.astype(np.uint16) * 257),
    "float.npy": lambda p: np.save(p, NOISY / 255),
    "opaque.png": lambda p: Image.fromarray(COLOUR).convert("RGBA").save(p),
    "palette.png": lambda p: Image.fromarray(COLOUR).quantize(64).save(p),
}
BAD = {
    "alpha.png": (
        lambda p: Image.new("RGBA", BLOCKS.shape[::-1], (9, 9, 9, 100)).save(p),
        "not opaque",
    ),
    "cmyk.jpg": (lambda p: Image.new("CMYK", BLOCKS.shape[::-1]).save(p), "CMYK"),
    "row.png": (lambda p: Image.new("L", (9, 1)).save(p), "1 row"),
    "pixel.png": (lambda p: Image.new("L", (1, 1)).save(p), "1 row"),
    "empty.png": (lambda p: Path(p).touch(), "0 bytes"),
    "flat.npy": (lambda p: np.save(p, np.full(BLOCKS.shape, 7.0)), "noise cannot be estimated"),
    "two.npy": (lambda p: np.save(p, BLOCKS > 100), "noise cannot be estimated"),
    "text.jpg": (lambda p: Path(p).write_text("x" * 99), "is not PNG, JPEG"),
    "missing.png": (lambda p: None, "there is no image"),
}


@pytest.mark.filterwarnings("always")  # opaque transparency is dropped with a warning
@pytest.mark.parametrize(
    ("command", "name"),
    [("denoise", name) for name in GOOD]  # the commands share their reader
    + [(command, name) for command in ("deblur", "inpaint") for name in ("photo.jpg", "deep.tif")],
)
def test_every_kind_of_file_has_a_result(command, name):
    GOOD[name](name)
    said = call(command, name, *COMMANDS[command], "--out", "out")
    assert said.exit_code == 0, said.output
    assert set(os.listdir("out")) == images.FILES
    numbers = json.loads(Path("out/result.json").read_text())
    assert numbers["command"] == command
    assert numbers["noise_source"] == "estimated"
    assert "sound" in numbers
    assert numbers["message"]
    assert f"run {numbers['message']}" in said.stdout
    assert np.load("out/restored.npy").shape[:2] == BLOCKS.shape


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", BAD)
def test_every_bad_file_is_one_line_and_nothing_is_written(command, name):
    make, words = BAD[name]
    make(name)
    before = set(os.listdir())
    assert words in one_line(call(command, name, *COMMANDS[command], "--out", "new/out"))
    assert set(os.listdir()) == before


def test_a_rotated_photograph_is_restored_upright():
    # On its side, so that it is compiled for the shape of the other images when it is upright.
    Image.fromarray(COLOUR.swapaxes(0, 1).copy()).save("phone.jpg", exif=exif(6))
    assert call("denoise", "phone.jpg").exit_code == 0
    assert np.load("phone-denoised/restored.npy").shape == COLOUR.shape


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seed", 10**23), "seed must be at most"),
        (("--seed", -1), "seed must be at least 0"),
        (("--noise", "1e-30"), "smaller than the rounding error"),
        (("--noise", "1e-320"), "noise must be positive"),
        (("--noise", "nan"), "noise must be"),
        (("--max-pixels", 100), "more than the limit of 100"),
        (("--max-pixels", 0), "max-pixels must be positive"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(command, words, said):
    # The log comes before the noise is compared with the image.
    result = call(command, "photo.png", *COMMANDS[command], *words, "--out", "new/out")
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert len(result.stderr.splitlines()) == 1
    assert set(os.listdir()) == {"photo.png", "mask.png"}


@pytest.mark.parametrize("blur", ["gaussian:4096", "gaussian:1e300", "box:99999999999", "box:nan"])
def test_the_command_refuses_a_kernel_that_is_too_large(blur):
    result = call("deblur", "photo.png", "--blur", blur)
    assert result.exit_code == 2
    assert "larger than the image" in result.stderr or "not a positive" in result.stderr
    assert set(os.listdir()) == {"photo.png", "mask.png"}


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "psf.npy"), (b"\x93NUMPY", "psf.npy"), (b"text", "psf.npy")],
)
def test_a_damaged_kernel_is_one_line(content, words):
    Path("psf.npy").write_bytes(content)
    result = call("deblur", "photo.png", "--blur", "psf.npy")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_missing_pixels_are_filled_in_from_a_mask_or_nan():
    mask = np.asarray(Image.open("mask.png")) > 0
    assert call("inpaint", "photo.png", "--mask", "mask.png", "--noise", 10).exit_code == 0
    filled = np.load("photo-inpainted/restored.npy")
    np.save("holes.npy", np.where(mask, np.nan, BYTES.astype(float)))
    assert call("inpaint", "holes.npy", "--noise", 10).exit_code == 0
    np.testing.assert_allclose(np.load("holes-inpainted/restored.npy"), filled, rtol=1e-3)
    # What was under the mask is not used.
    spoiled = np.where(mask, 255, BYTES).astype(np.uint8)
    Image.fromarray(spoiled).save("spoiled.png")
    assert call("inpaint", "spoiled.png", "--mask", "mask.png", "--noise", 10).exit_code == 0
    np.testing.assert_allclose(np.load("spoiled-inpainted/restored.npy"), filled, rtol=1e-3)


def test_masks_that_do_not_fit_are_one_line():
    Image.new("L", (5, 5), 255).save("small.png")
    assert "same size" in one_line(call("inpaint", "photo.png", "--mask", "small.png"))
    Image.new("L", BLOCKS.shape[::-1], 255).save("white.png")
    assert "every pixel is missing" in one_line(call("inpaint", "photo.png", "--mask", "white.png"))
    Image.new("L", BLOCKS.shape[::-1], 0).save("black.png")
    assert "no pixel is missing" in one_line(call("inpaint", "photo.png", "--mask", "black.png"))
    assert "no pixel is missing" in one_line(call("inpaint", "photo.png"))


def test_an_earlier_result_is_replaced_only_by_force():
    assert call("denoise", "photo.png").exit_code == 0
    before = os.stat("photo-denoised/result.json").st_mtime_ns
    assert "add --force" in one_line(call("denoise", "photo.png"))
    assert os.stat("photo-denoised/result.json").st_mtime_ns == before
    assert call("denoise", "photo.png", "--force").exit_code == 0
    assert os.stat("photo-denoised/result.json").st_mtime_ns != before


def test_arguments_are_checked_before_the_folder():
    assert call("deblur", "photo.png", "--blur", "box:3").exit_code == 0
    assert "'nine' is not" in one_line(call("deblur", "photo.png", "--blur", "box:nine"))
    assert "larger than the image" in one_line(call("deblur", "photo.png", "--blur", "box:99"))
    assert "steps must be" in one_line(call("deblur", "photo.png", "--blur", "box:3", "--steps", 0))


@pytest.mark.parametrize(("command", "usual"), [("denoise", "map"), ("deblur", "mean")])
def test_the_restored_image_is_the_one_that_was_asked_for(command, usual):
    for words, name in (((), usual), (("--output", "mean"), "mean"), (("--output", "map"), "map")):
        assert call(command, "photo.png", *COMMANDS[command], *words, "--out", name).exit_code == 0
        restored = np.load(f"{name}/restored.npy")
        np.testing.assert_array_equal(restored, np.load(f"{name}/{name}.npy"))
        assert json.loads(Path(f"{name}/result.json").read_text())["output"] == name
        assert f"--output {name}" in Path(f"{name}/report.html").read_text()
        shutil.rmtree(name)
    assert not np.array_equal(restored, np.zeros_like(restored))


def test_a_noise_that_does_not_fit_is_said_everywhere():
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = call("denoise", "photo.png", "--noise", 60)
    assert said.exit_code == 0
    assert "pipla: warning: the noise does not fit" in said.stderr
    assert "Warning: the run completed 30 steps" in said.stdout
    numbers = json.loads(Path("photo-denoised/result.json").read_text())
    assert numbers["sound"] is False
    assert numbers["residual_sd"] < 0.75
    assert "the noise does not fit" in numbers["message"]
    assert "the noise does not fit" in Path("photo-denoised/report.html").read_text()


@pytest.mark.filterwarnings("always")
def test_noise_that_cannot_be_learned_is_said():
    said = call("denoise", "photo.png", "--noise", "learn")
    assert said.exit_code == 0
    assert "pipla: warning: the noise of an image that is not blurred" in said.stderr
    assert json.loads(Path("photo-denoised/result.json").read_text())["noise_source"] == "estimated"
    assert "(estimated)" in said.stdout


def test_a_run_that_has_not_settled_is_said(monkeypatch):
    from pipla.cli import denoise

    whole = denoise.restore

    def moving(*args, **options):
        found = whole(*args, **options)
        message = found.result.message + "; theta was still moving after burn-in"
        unreliable = dataclasses.replace(
            found.result, message=message, status=pipla.Status.UNRELIABLE
        )
        return found._replace(result=unreliable)

    monkeypatch.setattr(denoise, "restore", moving)
    said = call("denoise", "photo.png")
    assert "Warning: the run completed 30 steps; theta was still moving" in said.stdout
    numbers = json.loads(Path("photo-denoised/result.json").read_text())
    assert numbers["sound"] is False
    assert "still moving" in numbers["message"]
    assert "Warning: the run" in Path("photo-denoised/report.html").read_text()


def test_warnings_are_one_line_even_where_they_are_errors():
    GOOD["opaque.png"]("opaque.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert "opaque everywhere" in one_line(call("denoise", "opaque.png"))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = call("denoise", "opaque.png")
    assert said.exit_code == 0
    assert "pipla: warning: " in said.stderr
    assert "opaque everywhere" in said.stderr


MAIN = "from pipla.cli import main; import sys; sys.argv[0] = 'pipla'; main()"


def test_a_terminal_without_unicode_and_a_full_disk():
    """In processes of their own: what Python does at its end cannot be seen from inside."""
    words = [sys.executable, "-c", MAIN, "denoise", "photo.png", "--noise", "10", "--steps", "30"]
    plain = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert plain.returncode == 0, plain.stderr
    assert "24 \\xd7 30" in plain.stdout
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            said = subprocess.run(
                [sys.executable, "-c", MAIN, "--version"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert said.returncode == 2
        assert said.stderr == "pipla: the output cannot be written: No space left on device.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_command_that_is_terminated_leaves_nothing_behind(folder):
    before = set(os.listdir())
    words = [sys.executable, "-c", MAIN, "denoise", "photo.png", "--noise", "10"]
    with subprocess.Popen(
        [*words, "--steps", "10000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert b"photo.png" in process.stdout.readline()  # its folder exists by now
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=120) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert set(os.listdir()) == before


def test_a_long_stage_gives_signs_of_life(capsys):
    with sign_of_life(first=0.01, later=0.01):
        logging.getLogger("pipla.imaging").info("preparing the operator")
        time.sleep(0.3)
    assert "… preparing the operator, 0 s" in capsys.readouterr().err
    with sign_of_life(first=60.0):
        logging.getLogger("pipla.imaging").info("preparing the operator")
    assert capsys.readouterr().err == ""
