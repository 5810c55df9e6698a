"""Damaged and hostile files of an experiment: one sentence each, and nothing is waited for."""

import os
import zipfile

import numpy as np
import pytest

from pipla_lab.experiments import results


@pytest.fixture
def experiment(tmp_path):
    series = {"row:curve": np.linspace(0, 1, 7)}
    results.save(results.Results("toy", "tiny", {}, 0, {}, series=series), tmp_path)
    found = results.read(tmp_path, lambda name: results.Row)
    np.testing.assert_array_equal(found.series["row:curve"], series["row:curve"])
    return tmp_path


def test_series_that_unpack_to_more_than_is_allowed_are_not_unpacked(experiment):
    with zipfile.ZipFile(experiment / "series.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb.npy", bytes(2**20))
        file.infolist()[0].file_size = 2**30  # what its table of contents says
    with pytest.raises(results.ResultsError, match="larger than"):
        results.read(experiment, lambda name: results.Row)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize("name", ["series.npz", "results.json"])
def test_a_pipe_in_an_experiment_is_not_waited_for(experiment, name):
    (experiment / name).unlink()
    os.mkfifo(experiment / name)
    with pytest.raises(results.ResultsError, match=r"not a regular file|holds no results\.json"):
        results.read(experiment, lambda name: results.Row)


def test_json_of_an_experiment_without_end_is_one_clear_error(experiment):
    (experiment / "results.json").write_bytes(b"[" * 100_000)
    with pytest.raises(results.ResultsError, match="damaged or not an experiment's"):
        results.read(experiment, lambda name: results.Row)


def test_what_a_killed_experiment_left_is_removed(experiment):
    (experiment / ".series.npz.abcdefgh.tmp").write_bytes(b"half")
    results.save(results.read(experiment, lambda name: results.Row), experiment)
    assert {path.name for path in experiment.iterdir()} == {"series.npz", "results.json"}


def test_an_experiment_that_was_killed_in_its_first_save_can_begin_again(tmp_path):
    (tmp_path / ".series.npz.abcdefgh.tmp").write_bytes(b"half")
    assert results.prepare(tmp_path, lambda name: results.Row) is None
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(results.ResultsError, match="not an experiment's"):
        results.prepare(tmp_path, lambda name: results.Row)
