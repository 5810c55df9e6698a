"""`pipla complete`: what it reads, what it writes, and what it refuses."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from pipla.cli.app import app
from pipla.cli.complete import FILES, read
from pipla.completion._doubts import moving


def call(*words):
    return CliRunner().invoke(app, ["complete", *map(str, words)])


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def cells(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_a_column_is_completed_by_its_mean(tmp_path):
    # One column of numbers needs no sampler: everything else of the command is seen.
    table = write(tmp_path / "t.csv", "name,a,unit", "x,1.25,m", "y,,m", "z,3.75,m")
    outcome = call(table, "--out", tmp_path / "out")
    assert outcome.exit_code == 0, outcome.output
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES
    completed = cells(tmp_path / "out" / "completed.csv")
    assert completed[0] == ["name", "a", "unit"]  # in the order of the file
    assert completed[1] == ["x", "1.25", "m"]
    assert abs(float(completed[2][1]) - 2.5) < 0.5
    low, high = (float(cells(tmp_path / "out" / f"{end}.csv")[2][1]) for end in ("lower", "upper"))
    assert low < float(completed[2][1]) < high
    numbers = json.loads((tmp_path / "out" / "result.json").read_text())
    assert numbers["missing"] == 1
    assert not numbers["sound"]  # it is only the mean, and says so
    again = call(table, "--out", tmp_path / "out")
    assert again.exit_code == 2
    assert "--force" in again.stderr


def test_large_values_that_vary_by_little_keep_their_digits(tmp_path):
    # With six digits, 1700000002 is 1.7e+09, and so are both ends of its interval.
    table = write(tmp_path / "t.csv", "n,t", "x,1700000001.25", "y,", "z,1700000003.75")
    assert call(table, "--out", tmp_path / "out").exit_code == 0
    low, middle, high = (
        float(cells(tmp_path / "out" / f"{name}.csv")[2][1])
        for name in ("lower", "completed", "upper")
    )
    assert low < middle < high
    assert abs(middle - 1700000002.5) < 1


def test_columns_without_values_and_empty_rows_are_named(tmp_path):
    table = write(tmp_path / "t.csv", "a,b,c", "1,,2", ",,", "3,,4.5")
    given = read(table, None)
    assert given.columns == ["a", "b", "c"]
    assert any("'b'" in note for note in given.notes)
    assert any("Rows without" in note for note in given.notes)
    np.testing.assert_array_equal(np.isnan(given.observed[1]), True)


def test_a_european_table_with_numbered_rows_and_dates(tmp_path):
    lines = [
        "nr;tag;a;b",
        "1;31.12.2024;1,5;",
        "2;01.01.2025;;2.500,25",
        "3;02.01.2025;3,5;1.000,5",
    ]
    table = write(tmp_path / "t.csv", *lines)
    given = read(table, None)
    # Dates come back as they are, and the numbers of the rows are not completed.
    assert given.columns == ["a", "b"]
    assert given.kept == {
        "nr": ["1", "2", "3"],
        "tag": ["31.12.2024", "01.01.2025", "02.01.2025"],
    }
    np.testing.assert_equal(given.observed, [[1.5, np.nan], [np.nan, 2500.25], [3.5, 1000.5]])
    assert "semicolons between its columns and decimal commas" in given.notes[0]
    assert "Passed through, as texts or numbers of the rows: 'nr' and 'tag'." in given.notes
    assert read(table, None, keep=["nr"]).columns == ["nr", "a", "b"]


def test_arguments_are_checked_before_the_folder(tmp_path):
    table, out = write(tmp_path / "t.csv", "a,b", "1.5,2", "2.5,3"), tmp_path / "out"
    out.mkdir()
    for name in FILES:
        (out / name).write_text("earlier")
    for words, said in [
        (("--triplets", "a,b,nothing"), "triplets must be a column"),
        (("--keep", "nothing"), "keep must be a column"),
        (("--level", "90"), "level"),
        (("--steps", "0"), "steps"),
        (("--max-rank", "0"), "max_rank"),
        ((), "--force"),
    ]:
        outcome = call(table, "--out", out, *words)
        assert outcome.exit_code == 2
        assert said in outcome.stderr
    assert (out / "result.json").read_text() == "earlier"


def test_triplets_are_sorted_and_repetitions_are_kept(tmp_path):
    lines = ["u2,10,1.0", "u1,9,2.0", "u1,9,4.0", "u1,,5.0"]
    table = write(tmp_path / "t.csv", "user,item,rating", *lines)
    given = read(table, "user,item,rating")
    assert given.rows == ["u1", "u2"]
    assert [float(name) for name in given.columns] == [9, 10]  # as numbers, not as text
    assert given.observed.shape == (2, 2)
    assert len(given.observed.values) == 3
    assert any("Repeated" in note for note in given.notes)
    assert any("left out" in note for note in given.notes)


def test_a_full_table_comes_back(tmp_path):
    table = write(tmp_path / "t.csv", "a,b,c", "1,2,3.5")
    outcome = call(table)
    assert outcome.exit_code == 0, outcome.output
    assert "No cell is missing" in outcome.output
    for file in ("completed", "lower", "upper"):
        assert cells(tmp_path / "t-completed" / f"{file}.csv") == [
            ["a", "b", "c"],
            ["1", "2", "3.5"],
        ]


def test_repeated_triplets_are_averaged_in_the_table(tmp_path):
    # One user: the mean is used, and no sampler runs.
    lines = ["u,x,1.0", "u,x,2.0", "u,y,4.5"]
    table = write(tmp_path / "t.csv", "user,item,rating", *lines)
    outcome = call(table, "--triplets", "user,item,rating")
    assert outcome.exit_code == 0, outcome.output
    completed = cells(tmp_path / "t-completed" / "completed.csv")
    assert completed == [["user", "x", "y"], ["u", "1.5", "4.5"]]
    numbers = json.loads((tmp_path / "t-completed" / "result.json").read_text())
    assert numbers["observed"] == 3
    assert numbers["noise_mcse"] is None  # nothing was sampled


def test_parquet_is_read_like_a_csv(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    lines = ["name,a,b", "x,1.5,", "y,,2.5"]
    path = write(tmp_path / "t.csv", *lines)
    pandas.read_csv(path).to_parquet(tmp_path / "t.parquet")
    given, again = read(path, None), read(tmp_path / "t.parquet", None)
    np.testing.assert_array_equal(given.observed, again.observed)
    assert (given.columns, given.kept) == (again.columns, again.kept)


@pytest.mark.parametrize("content", ["", "\n\n", "a,b\n"], ids=["no bytes", "blank", "header"])
def test_files_without_data_are_one_line(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_text(content)
    outcome = call(path)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("pipla: path ")
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("lines", "options", "word"),
    [
        (("a,b", "1,inf", "2,3"), (), "infinite"),
        (("a,b", "x,y", "z,w"), (), "no column of numbers"),
        (("a,b", ",", ","), (), "empty"),
        (("u,i,r", "a,b,c"), ("--triplets", "u,i,r"), "numbers"),
        (("u,i,r", "a,b,1"), ("--triplets", "u,i"), "three columns"),
        (("u,i,r", "a,b,1"), ("--triplets", "u,i,x"), "column of the file"),
        (("a", "1"), ("--level", "2"), "level"),
    ],
)
def test_what_cannot_be_completed_is_one_line(tmp_path, lines, options, word):
    outcome = call(write(tmp_path / "t.csv", *lines), *options)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("pipla: ")
    assert len(outcome.stderr.splitlines()) == 1
    assert word in outcome.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


def test_warnings_name_the_options_of_the_command(tmp_path):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((12, 3)) @ rng.standard_normal((3, 8))
    lines = [",".join(f"{value:.6g}" for value in row) for row in matrix]
    lines[0] = lines[0][lines[0].index(",") :]  # one gap
    path = write(tmp_path / "t.csv", ",".join("abcdefgh"), *lines)
    words = ("--max-rank", "1", "--steps", "6", "--out", tmp_path / "out")
    outcome = call(path, *words)
    assert outcome.exit_code == 0, outcome.output
    said = json.loads((tmp_path / "out" / "result.json").read_text())["warnings"]
    assert any("raise max_rank (--max-rank)" in sentence for sentence in said)
    trace = {"noise": np.linspace(0.0, 3.0, 400), "scale": np.zeros((400, 2))}
    (sentence,) = map(str, moving(SimpleNamespace(theta_trace=trace, burn_in=100)))
    assert "raise num_steps (--steps)" in sentence
