"""A share of `make attack` for every day: hostile files, kills, interrupts, savers and threads."""

import os
import random
import shutil
import time
import tracemalloc
import zipfile

import honest
import hostile_files
import jax.numpy as jnp
import pytest
from interrupts import attack_by_interrupts, attack_by_threads
from savers import attack_by_kills, attack_by_savers

import pipla
from pipla import _files
from pipla.engine.storage import DamagedResultError

pytestmark = pytest.mark.slow

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and pipes")


@posix
def test_hostile_files_are_refused_or_harmless(tmp_path):
    verdict = hostile_files.attack_files(tmp_path, 60, seed=2)
    assert verdict.failures == []
    assert verdict.peak <= 4
    assert verdict.slowest < 10


@posix
def test_a_killed_saver_loses_nothing_and_leaves_nothing(tmp_path):
    counts, failures = attack_by_kills(tmp_path, 10)
    assert failures == []
    assert counts["kills"] == 10
    assert counts["loaded"] > 3


@posix
def test_interrupted_runs_resume_to_the_same_bits(tmp_path):
    counts, failures = attack_by_interrupts(tmp_path, 12)
    assert failures == []
    assert sum(counts.values()) == 12


@posix
def test_savers_and_readers_do_not_disturb_each_other(tmp_path):
    counts, failures = attack_by_savers(tmp_path, 80)
    assert failures == []
    assert counts["saves"] == 80
    assert counts["loads"] > 0


def test_threads_run_and_save_at_once(tmp_path):
    counts, failures = attack_by_threads(tmp_path, 4, 5)
    assert failures == []
    assert counts["runs"] == 20


@pytest.fixture(scope="module")
def result():
    return honest.run()


@posix
@pytest.mark.parametrize("name", ["result.pipla", "result.json", "arrays.npz"])
def test_a_pipe_is_refused_and_not_waited_for(result, tmp_path, name):
    folder = shutil.copytree(hostile_files.FORMAT_1, tmp_path / "run")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    began = time.perf_counter()
    with pytest.raises(DamagedResultError, match="is not a regular file"):
        pipla.load(folder)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("form", [1, 2])
def test_a_zip_bomb_is_not_unpacked(result, tmp_path, form):
    folder = tmp_path / "run"
    if form == 1:
        shutil.copytree(hostile_files.FORMAT_1, folder)
        with zipfile.ZipFile(folder / "arrays.npz", "a") as file:
            file.writestr("bomb.npy", bytes(16 * 2**20), zipfile.ZIP_DEFLATED)
    else:
        members = hostile_files.members_of(result.save(folder))
        bomb = members | {"bomb.npy": bytes(16 * 2**20)}
        hostile_files.forge(folder, bomb, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    with pytest.raises(DamagedResultError, match="compressed"):
        pipla.load(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 2**20


def test_every_flipped_bit_is_noticed(result, tmp_path):
    folder = result.save(tmp_path / "run")
    data = (folder / "result.pipla").read_bytes()
    chance = random.Random(0)
    names = data.index(b'"theta_noise"')
    for place in (
        0,
        names + 3,
        len(data) - 70,
        len(data) - 1,
        *chance.sample(range(len(data)), 20),
    ):
        flipped = bytearray(data)
        flipped[place] ^= 1 << chance.randrange(8)
        (folder / "result.pipla").write_bytes(flipped)
        with pytest.raises(DamagedResultError, match="checksum"):
            pipla.load(folder)


def test_a_result_of_another_model_is_refused_with_a_sentence(result):
    """A forged name in theta reached the user as the KeyError of the model's own function."""
    other = pipla.Model(lambda theta, x, data: jnp.sum((x["w"] - theta["b"]) ** 2))
    with pytest.raises(ValueError, match=r"model and result do not fit: smooth.*KeyError: 'b'"):
        pipla.resume(result, other, num_steps=1, progress=False)


# Leftovers. #


@posix
def test_the_leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not(result, tmp_path):
    folder = result.save(tmp_path / "run")
    dead = folder / ".result.pipla.abcdefgh.tmp"
    dead.write_bytes(b"half")
    seen = []

    def fill(file):
        living = {path.name for path in folder.iterdir()} - {"result.pipla"}
        assert dead.name not in living
        result.save(folder)  # another saver, while this one writes
        assert {path.name for path in folder.iterdir()} == {"result.pipla", *living}
        seen.extend(living)
        file.write(b"whole")

    _files.write_whole(folder / "result.pipla", fill)
    assert len(seen) == 1
    assert (folder / "result.pipla").read_bytes() == b"whole"
    assert [path.name for path in folder.iterdir()] == ["result.pipla"]


@posix
def test_a_folder_whose_replacement_was_killed_half_way_is_put_back(tmp_path):
    names = {"a.txt"}

    def fill(text):
        with _files.whole_folder(tmp_path / "out", names, "ours") as fresh:
            (fresh / "a.txt").write_text(text)

    fill("old")
    (tmp_path / "out").rename(tmp_path / ".out.abcdefgh.old")  # killed between the two renames
    shutil.copytree(tmp_path / ".out.abcdefgh.old", tmp_path / ".out.abcdefgh.tmp")
    with pytest.raises(RuntimeError), _files.whole_folder(tmp_path / "out", names, "ours"):
        raise RuntimeError
    assert (tmp_path / "out" / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    fill("new")
    assert (tmp_path / "out" / "a.txt").read_text() == "new"
