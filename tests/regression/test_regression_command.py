"""`pipla regress`: tables in, files and a page out, errors in one line."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from pipla._data_files import read_table
from pipla.cli.app import app
from pipla.regression.tables import encoded, family_of

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
    assert set(rows) == {"a", "colour=blue", "colour=green", "colour=red"}
    assert float(rows["a"]["low"]) < 2 < float(rows["a"]["high"])
    red = float(rows["colour=red"]["mean"]) - float(rows["colour=blue"]["mean"])
    assert abs(red - 3) < 0.6
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


def test_missing_values_are_imputed_on_request(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,c,id,y\n1,u,p,1\n,v,q,2\n3,,r,3\n4,u,s,\n5,u,t,5\n")
    data = encoded(read_table(path), "y", impute=True)
    assert data.names == ("a", "c=(missing)", "c=u", "c=v")
    assert data.groups == (0, 1, 1, 1)
    np.testing.assert_array_equal(data.features[:, 0], [1, 3, 3, 5])
    np.testing.assert_array_equal(data.features[:, 1:].sum(1), 1)
    assert len(data.notes) == 4
    assert family_of("auto", data) == "linear"


def test_many_categories_are_stored_without_zeros(tmp_path):
    path = tmp_path / "data.csv"
    rows = [f"{i % 600}x,{i}" for i in range(1300)]
    path.write_text("c,y\n" + "\n".join(rows) + "\n")
    data = encoded(read_table(path), "y")
    assert data.features.shape == (1300, 600)
    assert data.features.nnz == 1300
