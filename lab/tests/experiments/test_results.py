"""`results.json`: its fields, and that no foreign or damaged file is overwritten."""

import json
import shutil

import numpy as np
import pytest

from pipla_lab.experiments import ResultsError, load, run
from pipla_lab.experiments import results as storage

TOP_KEYS = {"experiment", "preset", "settings", "seed", "versions", "reference", "rows"}
ROW_KEYS = {
    "algorithm",
    "prox",
    "variant",
    "theta_mean",
    "theta_sd",
    "distance_to_reference",
    "evaluations",
    "seconds",
}
#: What rows of experiments about theta have as well.
THETA_KEYS = {"nmse_last", "nmse_average", "evaluations_to_paper_best", "paper"}


def again(folder, **options):
    defaults = {"algorithms": ("PPGD",), "out": folder, "progress": False}
    return run("toy", "tiny", **{**defaults, **options}, log=lambda line: None)


@pytest.fixture
def copy(finished, tmp_path, monkeypatch):
    monkeypatch.delenv("PIPLA_DATA", raising=False)
    return shutil.copytree(finished, tmp_path / "copy")


def test_the_file_holds_what_the_documentation_says(finished):
    content = json.loads((finished / "results.json").read_text())
    assert set(content) >= TOP_KEYS
    assert set(content["reference"]) >= {"theta", "stderr"}
    variants = [row["variant"] for row in content["rows"]]
    assert variants == ["published", "corrected", "recommended"]
    for row in content["rows"]:
        assert set(row) >= ROW_KEYS | THETA_KEYS
        assert np.isfinite(row["distance_to_reference"])
        assert row["evaluations"] <= content["settings"]["num_steps"]


def test_distance_is_the_rms_of_bias_and_scatter(finished):
    for row in load(finished).rows:
        scatter = row.theta_sd**2 * (row.replicates - 1) / row.replicates
        expected = np.sqrt(row.bias**2 + scatter)
        np.testing.assert_allclose(row.distance_to_reference, expected, rtol=1e-6)


def test_saved_and_loaded_results_are_equal(finished, tmp_path):
    first = load(finished)
    storage.save(first, tmp_path)
    second = load(tmp_path)
    assert first.rows == second.rows
    assert set(first.series) == set(second.series)
    assert all(np.array_equal(first.series[k], second.series[k]) for k in first.series)


def test_numbers_that_json_does_not_know_become_null(finished, tmp_path):
    results = load(finished)
    results.rows[0].theta_sd = results.rows[0].finite = float("nan")
    storage.save(results, tmp_path)
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["rows"][0]["theta_sd"] is content["rows"][0]["finite"] is None
    row = load(tmp_path).rows[0]
    assert row.theta_sd is None
    assert np.isnan(row.finite)  # a number that is always there comes back as it was


DAMAGE = {
    "not json": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "a stranger's": lambda text: '{"rows": []}',
    "other format": lambda text: text.replace(f'"format": {storage.FORMAT}', '"format": 99'),
    "text for a number": lambda text: text.replace('"theta_mean": ', '"theta_mean": "x", "y": ', 1),
    "a row without a number": lambda text: text.replace('"finite": ', '"y": ', 1),
    "an unknown experiment": lambda text: text.replace('"toy"', '"toys"', 1),
    "no rows": lambda text: text.replace('"rows"', '"lines"'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_corrupted_file_is_an_error_and_is_not_changed(copy, damage):
    path = copy / "results.json"
    path.write_text(damage(path.read_text()))
    before = path.read_bytes()
    with pytest.raises(ResultsError, match="damaged or not an experiment's"):
        again(copy)
    assert path.read_bytes() == before


def test_corrupted_series_are_an_error_and_are_not_changed(copy):
    (copy / "series.npz").write_bytes(b"PK not really")
    with pytest.raises(ResultsError, match="damaged"):
        again(copy)
    assert (copy / "series.npz").read_bytes() == b"PK not really"


def test_series_with_code_in_them_are_not_loaded(copy):
    np.savez(copy / "series.npz", x=np.array([object()], dtype=object))
    with pytest.raises(ResultsError):
        load(copy)


@pytest.mark.parametrize("kind", ["foreign", "file", "below a file"])
def test_a_folder_that_cannot_be_used_is_refused_before_work(tmp_path, monkeypatch, kind):
    from pipla_lab.experiments.theta import measure

    monkeypatch.setattr(measure, "replicate", lambda *a, **k: pytest.fail("work has begun"))
    target = tmp_path / "out"
    if kind == "foreign":
        target.mkdir()
        (target / "thesis.tex").write_text("years of work")
    else:
        target.write_text("a file")
    with pytest.raises(ResultsError, match=r"choose another|cannot be made"):
        again(target / "deeper" if kind == "below a file" else target)


def test_a_folder_without_permission_is_refused_before_work(tmp_path, monkeypatch):
    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(storage.files.tempfile, "TemporaryFile", refuse)
    with pytest.raises(ResultsError, match="cannot be written to: Permission denied"):
        again(tmp_path / "out")


def test_other_settings_do_not_mix_with_old_rows(copy):
    for options, words in (
        ({"seed": 1}, "seed 0, not 1"),
        ({"replicates": 6}, "replicates 4, not"),
    ):
        before = (copy / "results.json").read_bytes()
        with pytest.raises(ResultsError, match=words):
            again(copy, **options)
        assert (copy / "results.json").read_bytes() == before
