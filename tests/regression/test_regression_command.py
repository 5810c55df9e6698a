"""`pipla regress`: tables in, files and a page out, errors in one line."""

import csv
import json
import re

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

from pipla._data_files import read_table
from pipla.cli.app import app
from pipla.cli.regress import FILES
from pipla.diagnostics import Severity
from pipla.regression import SparseLinearRegression
from pipla.regression._doubts import code_doubt
from pipla.regression.tables import encoded, family_of, formulated

pytest.importorskip("pandas")


def write(folder, name="data.csv", rows=60):
    rng = np.random.default_rng(0)
    a, colour = rng.standard_normal(rows), rng.choice(["red", "green", "blue"], rows)
    y = 2 * a + 3 * (colour == "red") + 0.3 * rng.standard_normal(rows)
    lines = [f"{u:.6g},{c},{v:.6g},{int(v > 1)}" for u, c, v in zip(a, colour, y, strict=True)]
    (folder / name).write_text("a,colour,y,high\n" + "\n".join(lines) + "\n")
    return folder / name


def run(*words):
    return CliRunner().invoke(app, ["regress", *map(str, words)])


def test_a_table_becomes_coefficients_numbers_and_a_page(tmp_path):
    path = write(tmp_path)
    out = tmp_path / "out"
    words = (path, "--target", "y", "--drop", "high", "--out", out, "--predictions")
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "linear regression of 'y'" in done.output
    assert {file.name for file in out.iterdir()} == {
        *("coefficients.csv", "result.json", "report.html", "predictions.csv")
    }
    with (out / "coefficients.csv").open() as file:
        rows = {row["feature"]: row for row in csv.DictReader(file)}
    # The most frequent colour has no row: the others are compared with it.
    assert list(rows) == ["a", "colour=green", "colour=red"]
    assert {row["relative to"] for row in rows.values()} == {"", "blue"}
    assert float(rows["a"]["low"]) < 2 < float(rows["a"]["high"])
    assert abs(float(rows["colour=red"]["mean"]) - 3) < 0.6
    page = (out / "report.html").read_text()
    assert "90 % interval" in page
    assert "<td>colour=red</td>" in page
    assert "colour=red (vs blue)" in done.output
    answer = json.loads((out / "result.json").read_text())
    assert abs(answer["theta"]["noise"] - 0.3) < 0.15
    assert len((out / "predictions.csv").read_text().splitlines()) == 61
    again = run(*words)
    assert again.exit_code == 2
    assert "--force" in again.output
    assert run(*words[:-1], "--force").exit_code == 0
    assert not (out / "predictions.csv").exists()


def test_two_values_are_a_logistic_regression(tmp_path):
    out = tmp_path / "out"
    words = ("--target", "high", "--drop", "y", "--out", out, "--predictions")
    done = run(write(tmp_path), *words)
    assert done.exit_code == 0, done.output
    assert "logistic regression of 'high'" in done.output
    head = (out / "predictions.csv").read_text().splitlines()[0]
    assert head == "predicted,probability of 0,probability of 1"


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("a,y\n1,2\n1,2\n", (), "there is nothing to explain"),
        ("a,y\n1,2\n,3\n", (), "column 'a' has 1 missing value"),
        ("a,y\n1,2\n2,\n", (), "column 'y' has 1 missing value"),
        ("a,y\n1,2\ninf,3\n", (), "column 'a' has 1 infinite value"),
        ("a,b\n1,2\n", (), "target must be a column of the file ('a', 'b'); got 'y'"),
        ("y\n1\n2\n", (), "no feature beside the target"),
        ("a,y\n1,u\n2,v\n", ("--family", "poisson"), "needs numbers"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(tmp_path, text, words, said):
    (tmp_path / "data.csv").write_text(text)
    done = run(tmp_path / "data.csv", "--target", "y", "--out", tmp_path / "out", *words)
    assert done.exit_code == 2
    assert said in done.output
    assert done.output.count("\n") <= 2
    assert not (tmp_path / "out").exists()


def table(folder, text):
    path = folder / "table.csv"
    path.write_text(text)
    return read_table(path)


def test_a_few_missing_values_are_imputed_on_request(tmp_path):
    text = "a,c,id,y\n1,u,p,1\n,v,q,2\n3,,r,3\n4,u,s,\n5,u,t,5\n"
    data = encoded(table(tmp_path, text), "y", impute=True)
    assert data.names == ("a", "c=v")
    assert data.groups == (0, 1)
    np.testing.assert_array_equal(data.features, [[1, 0], [3, 1], [3, 0], [5, 0]])
    assert data.notes == (
        "1 row without 'y' left out.",
        "Left out as texts of which most occur only once: 'id' (4 of 4).",
        "Missing values were replaced by the median of the column: 'a' (1).",
        "Missing texts were replaced by the most frequent one: 'c' (1).",
        "Categories are compared with the most frequent one: 'c' (u).",
    )
    assert family_of("auto", data)[0] == "linear"


def test_many_missing_values_get_a_feature_and_a_category(tmp_path):
    rows = [f"{i if i % 3 else ''},{'uv'[i % 2] if i % 4 else ''},{i}.5" for i in range(60)]
    data = encoded(table(tmp_path, "\n".join(["a,c,y", *rows])), "y", impute=True)
    assert data.names == ("a", "a missing", "c=(missing)", "c=u")
    assert data.shown[2] == "c=(missing) (vs v)"
    np.testing.assert_array_equal(data.features[:, 1], np.arange(60) % 3 == 0)
    np.testing.assert_array_equal(data.features[:, 2], np.arange(60) % 4 == 0)
    np.testing.assert_allclose(data.scales, data.features.std(axis=0))


def test_missing_values_are_counted_in_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"'a' \(1\), 'b' \(2\); fill them in, or add --impute"):
        encoded(table(tmp_path, "a,b,y\n1,,1\n,,2\n3,2,4\n"), "y")


def test_columns_that_say_nothing_are_left_out_and_named(tmp_path):
    rows = [f"{i},{100 + i},n{i},x,z{i // 2},{i % 7},{i * i}" for i in range(20)]
    given = table(tmp_path, "\n".join([",user_id,name,same,pair,a,y", *rows]))
    data = encoded(given, "y")
    assert set(data.groups) == {4, 5}
    assert data.notes[:3] == (
        "Left out as numbers of the rows (--keep uses them): 'column 1' and 'user_id'.",
        "Left out as texts of which most occur only once: 'name' (20 of 20).",
        "Left out as constant: 'same'.",
    )
    kept = encoded(given, "y", keep=["user_id"])
    assert "user_id" in kept.names
    with pytest.raises(ValueError, match="keep must be a column"):
        encoded(given, "y", keep=["nobody"])
    # An only feature is not taken away.
    assert encoded(table(tmp_path, "x,y\n0,1.5\n1,2.5\n2,4.5\n"), "y").names == ("x",)


def test_rare_texts_are_one_category(tmp_path):
    rows = [f"{'uv'[i % 2]},{i}" for i in range(20)]
    data = encoded(table(tmp_path, "\n".join(["c,y", *rows, "p,1", "q,2", "r,3"])), "y")
    assert data.shown == ("c=(other) (vs u)", "c=v (vs u)")
    assert data.features[:, 0].sum() == 3
    assert "'c' (3)" in data.notes[0]


def test_dates_have_seasons_and_weekdays_on_request(tmp_path):
    days = np.datetime64("2024-01-01") + np.arange(0, 700, 5)  # the first is a Monday
    rows = [f"{day},{i}" for i, day in enumerate(days)]
    given = table(tmp_path, "\n".join(["when,y", *rows]))
    assert encoded(given, "y").names == ("when",)
    data = encoded(given, "y", dates="season")
    assert data.names[:3] == ("when", "when: sin of the year", "when: cos of the year")
    assert data.shown[3:] == tuple(
        f"when={day} (vs Friday)"
        for day in ("Monday", "Saturday", "Sunday", "Thursday", "Tuesday", "Wednesday")
    )
    assert data.features[0, 3] == 1
    assert data.features[1, 4] == 1
    assert data.features[0, 2] > 0.999  # the year begins
    assert any("Season and weekday" in note for note in data.notes)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("y", "family", "said"),
    [
        (["a", "b", "a", "b"], "logistic", "two values"),
        (["a", "b", "c", "b"], "logistic", "3 classes"),
        ([0, 1, 1, 0], "logistic", "two values"),
        ([0, 1, 2] * 20, "logistic", "taken for labels"),
        ([1, 2, 3] * 20, "logistic", "taken for labels"),
        (RNG.poisson(2, 200), "poisson", "taken for counts"),
        (np.append(RNG.poisson(60, 200), 0), "linear", ""),
        ([1] * 3 + [2] * 20 + [3] * 30 + [5] * 9, "linear", "if they are labels"),
        (RNG.integers(25, 350, 100), "linear", ""),
        (RNG.standard_normal(50), "linear", ""),
        (RNG.integers(-3, 3, 50), "linear", ""),
    ],
)
def test_the_family_is_guessed_and_said(tmp_path, y, family, said):
    rows = [f"{0.37 * i % 1:.3f},{value}" for i, value in enumerate(y)]
    data = encoded(table(tmp_path, "\n".join(["a,y", *rows])), "y")
    chosen, sentence = family_of("auto", data)
    assert chosen == family
    assert said in sentence
    assert bool(said) == bool(sentence)
    assert family_of("logistic", data) == ("logistic", "")


def test_arguments_are_checked_before_the_folder(tmp_path):
    path, out = write(tmp_path), tmp_path / "out"
    out.mkdir()
    for name in FILES[:-1]:
        (out / name).write_text("earlier")
    for words, said in [
        (("--target", "nothing"), "target must be a column"),
        (("--target", "y", "--drop", "nothing"), "drop must be a column"),
        (("--target", "y", "--level", "90"), "level must be between 0 and 1"),
        (("--target", "y", "--seed", "-1"), "seed"),
        (("--formula", "y ~ nothing"), "do not have: 'nothing'"),
        (("--formula", "y ~ a", "--target", "y"), "either --target or --formula"),
        ((), "either --target or --formula"),
        (("--target", "y"), "--force"),
    ]:
        done = run(path, "--out", out, *words)
        assert done.exit_code == 2
        assert said in done.output
    assert (out / "result.json").read_text() == "earlier"


def test_one_level_for_all_intervals(tmp_path):
    path = write(tmp_path)
    widths = []
    for level in (0.5, 0.98):
        out = tmp_path / f"out{level}"
        words = ("--target", "y", "--level", level, "--out", out, "--predictions")
        done = run(path, *words)
        assert done.exit_code == 0, done.output
        percent = f"{100 * level:g} %"
        page = (out / "report.html").read_text()
        assert f"{percent} interval" in done.output
        assert f"{percent} interval" in page
        assert "90 %" not in page
        assert f"--level {level}" in page
        answer = json.loads((out / "result.json").read_text())
        assert answer["level"] == level
        with (out / "coefficients.csv").open() as file:
            a = next(row for row in csv.DictReader(file) if row["feature"] == "a")
        with (out / "predictions.csv").open() as file:
            first = next(csv.DictReader(file))
        ends = [(a["low"], a["high"]), (first["low"], first["high"])]
        ends.append(answer["theta_interval"]["noise"])
        widths.append([float(high) - float(low) for low, high in ends])
    # Those of a normal distribution are 3.4 times as long.
    assert np.all(np.divide(widths[1], widths[0]) > 2)


def test_a_formula_on_the_command_line(tmp_path):
    pytest.importorskip("formulaic")
    path, out = write(tmp_path), tmp_path / "out"
    done = run(path, "--formula", "y ~ a * C(colour)", "--out", out)
    assert done.exit_code == 0, done.output
    with (out / "coefficients.csv").open() as file:
        rows = {row["feature"]: float(row["mean"]) for row in csv.DictReader(file)}
    assert set(rows) == {
        *("a", "C(colour)[T.green]", "C(colour)[T.red]"),
        *("a:C(colour)[T.green]", "a:C(colour)[T.red]"),
    }
    assert abs(rows["C(colour)[T.red]"] - 3) < 0.6
    assert "'colour' (blue)" in done.output
    assert "formula 'y ~ a +' cannot be used" in run(path, "--formula", "y ~ a +").output


def test_many_categories_are_stored_without_zeros(tmp_path):
    rows = [f"{i % 600}x,{i}" for i in range(1300)]
    data = encoded(table(tmp_path, "\n".join(["c,y", *rows])), "y")
    assert data.features.shape == (1300, 599)
    assert data.features.nnz == 1300 - 3
    assert any("Many categories: 'c' (600)" in note for note in data.notes)


def columns_with_codes(rows=120):
    """Columns that hold a code for missing values, and columns that only look like it."""
    rng = np.random.default_rng(3)
    few = np.arange(rows) < 8
    coded = {"a": np.where(few, -999, rng.normal(5, 2, rows).round(3))}
    coded["b"] = np.where(few, 9999, rng.integers(18, 90, rows))
    sound = {
        "binary": rng.integers(0, 2, rows),
        "outlier": np.append(rng.poisson(3, rows - 1), 500),
        "zeros": np.where(rng.random(rows) < 0.7, 0, rng.normal(50, 1, rows)),
        "levels": rng.choice([1, 2, 3, 10], rows),
        "normal": rng.standard_normal(rows),
        "tailed": rng.standard_cauchy(rows),
    }
    return coded, sound


def test_a_code_for_missing_values_is_said_and_nothing_else_is(tmp_path):
    coded, sound = columns_with_codes()
    columns = coded | sound | {"y": np.random.default_rng(4).standard_normal(120)}
    lines = [
        ",".join(f"{value:.6g}" for value in row) for row in zip(*columns.values(), strict=True)
    ]
    found = table(tmp_path, "\n".join([",".join(columns), *lines]))
    for data in (encoded(found, "y"), formulated(found, "y ~ a + b + zeros + levels + tailed")):
        with pytest.warns(UserWarning, match="far from all others"):
            model = SparseLinearRegression(random_state=0).fit(data.rows(), data.target)
        (said,) = [one for one in model.findings_ if "far from all others" in str(one)]
        assert said.severity is Severity.NOTE
        assert said.sentence == (
            "8 values of feature 'a' are -999 and 8 values of feature 'b' are 9999, far from all "
            "others"
        )
    assert code_doubt(scipy.sparse.csr_array(encoded(found, "y").features), str) is not None
    assert -999 in encoded(found, "y").features  # nothing is changed


def test_words_among_numbers_are_missing_and_named(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{x + 1:.3f}" for x in rng.standard_normal(240)]
    rows[10:14] = [f"k.A.,{i}" for i in range(4)]
    found = table(tmp_path, "\n".join(["area,y", *rows]))
    said = r"4 of 240 values of 'area' are no numbers \('k\.A\.'\) and count as missing\."
    with pytest.raises(ValueError, match=rf"'area' has 4 missing values; .*{said}"):
        encoded(found, "y")
    data = encoded(found, "y", impute=True)
    assert data.names == ("area",)
    assert any(re.fullmatch(said, note) for note in data.notes)


def test_the_page_says_for_which_class_log_odds_are(tmp_path):
    out = tmp_path / "out"
    done = run(write(tmp_path), "--target", "high", "--drop", "y", "--out", out)
    assert "Coefficients: log-odds of 1 against 0." in done.output
    assert "Coefficients: log-odds of 1 against 0" in (out / "report.html").read_text()
