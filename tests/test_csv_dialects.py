"""CSV files as people have them: each is compared with the frame that it was written from."""

from __future__ import annotations

import csv
import gzip
import io

import numpy as np
import pytest

from pipla._data_files import read_table

pd = pytest.importorskip("pandas")

ROWS = 60


def frame():
    """Numbers below and above 1000, integers, texts with accents, and days."""
    rng = np.random.default_rng(0)
    price = np.round(rng.uniform(800, 2_500_000, ROWS), 2)
    price[:2] = [999.25, 1234567.89]
    return pd.DataFrame(
        {
            "größe": np.round(rng.normal(0, 3, ROWS), 3),
            "price": price,
            "count": rng.integers(0, 40, ROWS),
            "city": rng.choice(["Zürich", "Rome", "Paris"], ROWS),
            "when": pd.Timestamp("2024-01-05") + pd.to_timedelta(rng.integers(0, 600, ROWS), "D"),
        }
    )


def number(decimal, group=""):
    """A function that writes numbers with these marks."""

    def write(value):
        if not isinstance(value, float | np.floating):
            return str(value)
        text = f"{value:,.3f}" if group else f"{value:.3f}"
        return text.replace(",", "_").replace(".", decimal).replace("_", group)

    return write


def text_of(
    data,
    sep=",",
    number=str,
    date="%Y-%m-%d",
    end="\n",
    header=True,
    trailing="",
    quoting=csv.QUOTE_MINIMAL,
    quote='"',
):
    """The frame as text."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=sep, lineterminator="\n", quoting=quoting, quotechar=quote)
    if header:
        writer.writerow(data.columns)
    for row in data.itertuples(index=False):
        cells = [v.strftime(date) if isinstance(v, pd.Timestamp) else number(v) for v in row]
        writer.writerow(cells)
    return file.getvalue().replace("\n", trailing + end)


EUROPEAN = {"sep": ";", "number": number(",")}

#: Options of `text_of`, the encoding, and what is said (or nothing but the dates).
DIALECTS = {
    "plain": ({}, "utf-8", ""),
    "european": (EUROPEAN, "utf-8", "semicolons between its columns and decimal commas"),
    "thousands 1,234.5": ({"number": number(".", ",")}, "utf-8", "Thousands separators"),
    "thousands 1.234,5": ({"sep": ";", "number": number(",", ".")}, "utf-8", "Thousands"),
    "thousands 1 234,5": ({"sep": ";", "number": number(",", " ")}, "utf-8", "Thousands"),
    "thousands with thin spaces": ({"sep": "\t", "number": number(",", "\u202f")}, "utf-8", "tabs"),
    "thousands 1'234.5": ({"sep": ";", "number": number(".", "'")}, "utf-8", "Thousands"),
    "decimal commas in quotes": ({"number": number(",")}, "utf-8", "decimal commas"),
    "tabs": ({"sep": "\t"}, "utf-8", "tabs between its columns"),
    "tabs and decimal commas": ({"sep": "\t", "number": number(",")}, "utf-8", "decimal commas"),
    "bars": ({"sep": "|"}, "utf-8", "vertical bars"),
    "spaces": ({"sep": " "}, "utf-8", "spaces between its columns"),
    "byte order mark": ({}, "utf-8-sig", ""),
    "UTF-16": ({"sep": "\t"}, "utf-16", "UTF-16 letters"),
    "UTF-16 without a mark": ({}, "utf-16-be", "UTF-16 letters"),
    "Windows-1252": (EUROPEAN, "cp1252", "Windows-1252 letters"),
    "Windows ends of lines": ({"end": "\r\n"}, "utf-8", ""),
    "old Mac ends of lines": ({"end": "\r"}, "utf-8", ""),
    "blank lines": ({"end": "\n\n"}, "utf-8", ""),
    "everything quoted": ({"quoting": csv.QUOTE_ALL}, "utf-8", ""),
    "single quotes": ({"quoting": csv.QUOTE_ALL, "quote": "'"}, "utf-8", "single quotes"),
    "separators at the ends of lines": ({"sep": ";", "trailing": ";"}, "utf-8", "semicolons"),
    "days 31.12.2024": ({"date": "%d.%m.%Y"}, "utf-8", "Dates (day first)"),
    "days 12/31/2024": ({"date": "%m/%d/%Y"}, "utf-8", "Dates (month first)"),
    "days 31/12/2024": ({"date": "%d/%m/%Y"}, "utf-8", "Dates (day first)"),
    "days 31-12-24": ({"date": "%d-%m-%y"}, "utf-8", "Dates (day first)"),
    "days Dec 31, 2024": ({"date": "%b %d, %Y"}, "utf-8", ""),
    "days 31 December 2024": ({"date": "%d %B %Y"}, "utf-8", ""),
    "days 2024/12/31": ({"date": "%Y/%m/%d"}, "utf-8", ""),
    "days 20241231": ({"date": "%Y%m%d"}, "utf-8", "as one number"),
    "timestamps": ({"date": "%Y-%m-%dT%H:%M:%SZ"}, "utf-8", ""),
    "clocks with AM and PM": ({"date": "%m/%d/%Y %I:%M %p"}, "utf-8", "month first"),
}


def compare(table, data):
    """The table is the frame: names, kinds and values."""
    assert table.names == tuple(data.columns)
    assert table.kinds == ("real", "real", "integer", "text", "date")
    for place, name in enumerate(data.columns):
        expected = data[name]
        if name == "when":
            expected = (expected - pd.Timestamp(0)) / pd.Timedelta(days=1)
        if table.kinds[place] == "text":
            assert table.columns[place].tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(table.columns[place], expected.to_numpy(float), rtol=1e-12)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_file_in_each_dialect_is_the_frame(tmp_path, name):
    options, encoding, said = DIALECTS[name]
    path = tmp_path / "data.csv"
    path.write_bytes(text_of(frame(), **options).encode(encoding))
    table = read_table(path)
    compare(table, frame())
    assert said in " ".join(table.notes)
    # Beside the dates, nothing is said of what is plain.
    assert said or len(table.notes) == 1, table.notes


@pytest.mark.parametrize(
    ("before", "options", "said"),
    [
        ("# made by hand\n# in May, 2024\n", {}, "2 lines beginning with #"),
        ("\n\n", {}, ""),
        ("sep=;\n", {"sep": ";"}, "semicolons"),
        ("Sales, by city\n\n", {"sep": ";"}, "1 line above the table"),
        ("Sales;;;;\n", {"sep": ";"}, "1 line above the table"),
    ],
    ids=["comments", "blank lines", "Excel", "a title", "a title with separators"],
)
def test_lines_above_the_table(tmp_path, before, options, said):
    path = tmp_path / "data.csv"
    path.write_text(before + text_of(frame(), **options), encoding="utf-8")
    table = read_table(path)
    compare(table, frame())
    assert said in " ".join(table.notes)


def test_comments_between_rows_are_left_out_wherever_they_are(tmp_path):
    lines = text_of(frame()).splitlines()
    lines.insert(5, "# 1,2,3,x,2024-01-01")
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress("\n".join([*lines, "# the end"]).encode()))
    table = read_table(path)
    compare(table, frame())
    assert "2 lines beginning with # left out." in table.notes


def test_a_column_of_colours_is_not_a_comment(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("colour,y\n#ff0000,1\n#00ff00,2\n#0000ff,3\n")
    table = read_table(path)
    assert table.columns[0].tolist() == ["#ff0000", "#00ff00", "#0000ff"]


def test_a_file_without_names(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(text_of(frame(), header=False), encoding="utf-8")
    table = read_table(path)
    assert table.names == tuple(f"column {i}" for i in range(1, 6))
    compare(table._replace(names=tuple(frame().columns)), frame())
    assert "first line holds data, not names" in table.notes[0]


def test_names_in_a_comment(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("# x y\n1.5 2\n2.5 3\n")
    table = read_table(path)
    assert table.names == ("x", "y")
    assert table.columns[0].tolist() == [1.5, 2.5]
    assert "The first comment was read as the names of the columns." in table.notes


@pytest.mark.parametrize("names", ["country,2019,2020", ",0,1,2", "id,10,50", "0,1,2"])
def test_numbers_as_names(tmp_path, names):
    path = tmp_path / "data.csv"
    width = names.count(",")
    row = ",".join(["5" if names[0] in "i0," else "Italy", *["1.5"] * width])
    path.write_text(f"{names}\n{row}\n{row}\n")
    table = read_table(path)
    assert table.num_rows == 2
    assert [name for name in table.names if not name.startswith("column")] == [
        name for name in names.split(",") if name
    ]
    assert "though it holds numbers" in " ".join(table.notes)


def test_names_of_rows_as_r_writes_them(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text('"a" "b"\n"1" 1.5 "x y"\n"2" 2.5 "z"\n')
    table = read_table(path)
    assert table.names == ("column 1", "a", "b")
    assert table.columns[2].tolist() == ["x y", "z"]
    assert table.is_index(0)


def test_the_decimal_mark_of_the_file_decides_about_three_digits(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a;b\n1.234;0,5\n12.500;1,25\n")
    table = read_table(path)
    assert [column.tolist() for column in table.columns] == [[1234, 12500], [0.5, 1.25]]
    path.write_text('a,b\n"1,234",0.5\n"12,500",1.25\n')
    assert read_table(path).columns[0].tolist() == [1234, 12500]


@pytest.mark.parametrize(
    ("text", "value", "reading", "other", "contrary"),
    [
        ('a,b\n"1,234",x\n"2,500",y\n', 1234, "thousands separator", ",", 1.234),
        ("a;b\n1,234;x\n2,500;y\n", 1.234, "decimal mark", ".", 1234),
        ("a;b\n1.234;x\n2.500;y\n", 1.234, "decimal mark", ",", 1234),
        ("a\tb\n1,234\tx\n2,500\ty\n", 1234, "thousands separator", ",", 1.234),
    ],
)
def test_marks_that_leave_a_choice_are_said(tmp_path, text, value, reading, other, contrary):
    path = tmp_path / "data.csv"
    path.write_text(text)
    table = read_table(path)
    assert table.columns[0][0] == value
    said = table.notes[-1]
    assert f"was read as a {reading}" in said
    assert f"--decimal {other!r}" in said
    again = read_table(path, decimal=other)
    assert again.columns[0][0] == contrary
    assert "was read as" not in " ".join(again.notes)


def test_three_decimals_in_a_plain_file_are_not_worth_a_word(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b\n1.234,2.345\n1.500,3.250\n")
    table = read_table(path)
    assert table.columns[0].tolist() == [1.234, 1.5]
    assert table.notes == ()


def test_days_and_months_that_leave_a_choice_are_said(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("d,y\n01/02/2024,1\n03/04/2024,2\n")
    table = read_table(path)
    january = (np.datetime64("2024-01-02") - np.datetime64(0, "D")).astype(int)
    assert table.columns[0][0] == january
    assert "read with the month first" in table.notes[0]
    path.write_text("d;y\n01/02/2024;1,5\n03/04/2024;2\n")
    table = read_table(path)
    assert table.columns[0][0] == january + 30
    assert "read with the day first" in " ".join(table.notes)


@pytest.mark.parametrize(
    "text", ["13/14/2024", "1.2.3.4", "1234-56", "12:30", "May be", "10/2024x"]
)
def test_what_is_not_a_date_stays_text(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text(f"d,y\n{text},1\n{text},2\n")
    assert read_table(path).kinds[0] == "text"


def test_units_and_marks_of_missing_values(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(
        'price,share,level,t\n"$1,200.50",12%,3,2024-01-01\n$80,?,-,?\n-$5,1%,4,2024-01-03\n'
    )
    table = read_table(path)
    np.testing.assert_equal(table.columns[0], [1200.5, 80, -5])
    np.testing.assert_equal(table.columns[1], [12, np.nan, 1])
    np.testing.assert_equal(table.columns[2], [3, np.nan, 4])
    np.testing.assert_equal(np.isnan(table.columns[3]), [False, True, False])
    assert "The unit $ was left out of 'price'." in table.notes


def test_a_column_of_numbers_with_a_word_is_named(tmp_path):
    path = tmp_path / "data.csv"
    rows = [f"{i}.5,{i}" for i in range(30)]
    path.write_text("\n".join(["a,y", *rows, "broken,3"]) + "\n")
    table = read_table(path)
    assert table.kinds == ("real", "integer")
    assert table.columns[0][:2].tolist() == [0.5, 1.5]
    assert np.isnan(table.columns[0][-1])
    assert table.notes == ("1 of 31 values of 'a' is no number ('broken') and counts as missing.",)


def test_values_that_say_something_of_a_number_are_not_missing(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["a,y", *(f"{i % 3},{i}" for i in range(30)), "3+,3"]) + "\n")
    table = read_table(path)
    assert table.kinds == ("text", "integer")
    assert table.notes == (
        "Column 'a' is text: it holds numbers, but 1 value is not, such as '3+'.",
    )


def test_a_letter_of_windows_behind_the_sample_is_read(tmp_path):
    path = tmp_path / "data.csv"
    lines = ["x"] * 200_000
    path.write_bytes(b"city,y\n" + "".join(f"{x},1\n" for x in lines).encode() + b"Z\xfcrich,2\n")
    table = read_table(path)
    assert table.columns[0][-1] == "Zürich"
    assert "Windows-1252" in table.notes[0]


def test_what_the_sample_does_not_show_is_read_or_refused(tmp_path):
    path = tmp_path / "data.csv"
    # Whole numbers for the length of the sample, then decimal commas: the column is read as such.
    path.write_text("a;y\n" + "12;1\n" * 100_000 + "1,5;2\n")
    table = read_table(path)
    assert (table.columns[0][0], table.columns[0][-1]) == (12, 1.5)
    path.write_text("a,y\n" + "12,1\n" * 100_000 + "1,5,2\n")
    with pytest.raises(ValueError, match="cannot be read as a table"):
        read_table(path)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(ValueError, match="not a text file"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "is_index"),
    [
        (",y\n0,1\n1,2\n2,1\n", True),
        ("PassengerId,y\n7,1\n3,2\n9,1\n", True),
        ("user_id,y\n7,1\n3,2\n9,1\n", True),
        ("n,y\n3,1\n1,2\n2,1\n", True),
        ("n,y\n3,1\n1,2\n9,1\n", False),
        ("year,y\n1999,1\n2000,2\n2001,1\n", False),
        ("age,y\n3,1\n3,2\n9,1\n", False),
        ("humid,y\n7,1\n3,2\n9,1\n", False),
        ("PassengerId,y\n7,1\n7,2\n9,1\n", False),
    ],
)
def test_columns_that_number_the_rows(tmp_path, text, is_index):
    path = tmp_path / "data.csv"
    path.write_text(text)
    assert read_table(path).is_index(0) == is_index


def test_errors_of_spreadsheets_are_missing_values_and_no_comments(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b\n#N/A,1\n#DIV/0!,2\n3,4\n")
    table = read_table(path)
    np.testing.assert_equal(table.columns[0], [np.nan, np.nan, 3])


def test_texts_with_ends_of_lines_and_numbers_without_bounds(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('a,b,c\n"x\ny, z",18446744073709551615,1492-10-12\nq,1,1789-07-14\n')
    table = read_table(path)
    assert table.columns[0].tolist() == ["x\ny, z", "q"]
    np.testing.assert_allclose(table.columns[1], [2.0**64, 1])
    expected = np.array(["1492-10-12", "1789-07-14"], "datetime64[D]").astype(int)
    if table.kinds[2] == "date":  # before pandas 3, such dates are out of range
        assert table.columns[2].tolist() == expected.tolist()


def test_numbers_with_two_decimal_marks_are_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;y\n1.5;1\n1,5;2\n2.5;3\n;4\n2,25;5\n")
    table = read_table(path)
    assert table.kinds[0] == "text"
    (said,) = [note for note in table.notes if "'a'" in note]
    assert "numbers with two decimal marks, such as '1.5' and '1,5'" in said
