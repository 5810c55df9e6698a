"""The command line: one line for each mistake, exit code 2, and no traceback."""

import shutil

import pytest
from typer.testing import CliRunner

from pipla.cli.app import app


@pytest.fixture(autouse=True)
def _generated_data(monkeypatch):
    monkeypatch.delenv("PIPLA_DATA", raising=False)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["logistc-laplace"], "did you mean 'logistic-laplace'"),
        (["toy", "--preset", "quik"], "did you mean 'quick'"),
        (["toy", "--algorithms", "PIPGA"], "'PIPGLA'"),
        (["toy", "--replicates", "1"], "at least 2"),
        (["toy", "--algorithms", ""], "algorithms is empty"),
        (["toy", "--preset", "big"], "there are quick, paper."),
    ],
)
def test_wrong_words_are_one_line_with_a_hint(words, hint, tmp_path):
    result = call("experiment", "run", *words, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert hint in result.stderr
    assert not (tmp_path / "out").exists()


def test_missing_data_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIPLA_DATA", str(tmp_path))
    result = call("experiment", "run", "toy", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "toy_elastic_net.npz" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_corrupted_file_is_one_line_everywhere(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    (folder / "results.json").write_text("{")
    for words in (
        ("experiment", "run", "toy", "--preset", "tiny", "--out", folder),
        ("experiment", "compare", folder),
        ("report", folder),
    ):
        result = call(*words)
        assert result.exit_code == 2
        assert len(result.stderr.strip().splitlines()) == 1
        assert "damaged" in result.stderr
    assert (folder / "results.json").read_text() == "{"


def test_list_shows_every_experiment():
    result = call("experiment", "list")
    assert result.exit_code == 0
    for name in ("toy", "logistic-laplace", "logistic-uniform", "rate", "traces", "ablation"):
        assert name in result.stdout
    assert "tiny" not in result.stdout


def test_run_resumes_a_finished_folder_and_prints_its_table(finished):
    result = call(
        "experiment", "run", "toy", "--preset", "tiny", "--algorithms", "ppgd", "--out", finished
    )
    assert result.exit_code == 0, result.output
    assert "rows are in" in result.stdout
    assert "PPGD" in result.stdout


def test_compare_puts_runs_side_by_side(finished, tmp_path):
    other = shutil.copytree(finished, tmp_path / "other")
    result = call("experiment", "compare", finished, other)
    assert result.exit_code == 0
    assert "other: theta" in result.stdout
    assert "ppgd-exact-corrected" in result.stdout


def test_ctrl_c_says_how_to_resume(tmp_path, monkeypatch):
    from pipla_lab.experiments.theta import measure

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "replicate", stop)
    result = call("experiment", "run", "toy", "--preset", "tiny", "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert "run the same command again to resume" in result.stdout
