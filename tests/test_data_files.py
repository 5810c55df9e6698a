"""Tables from files: kinds, missing values, and errors that name the file or the column."""

import gzip

import numpy as np
import pytest

from pipla._data_files import read_table

pd = pytest.importorskip("pandas")


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_of_each_kind(tmp_path):
    table = read_table(write(tmp_path, "a,b,c,d\n1,0.5,True,x\n2,1.5,False,y\n"))
    assert table.names == ("a", "b", "c", "d")
    assert table.kinds == ("integer", "real", "boolean", "text")
    assert [column.dtype.kind for column in table.columns] == ["i", "f", "b", "O"]
    assert table.columns[3].tolist() == ["x", "y"]
    assert table.num_rows == 2


def test_missing_values_are_nan_or_none(tmp_path):
    table = read_table(write(tmp_path, "a,b,c\n1,x,True\n,,\n3,z,False\n"))
    assert table.kinds[:2] == ("real", "text")
    np.testing.assert_equal(table.columns[0], [1.0, np.nan, 3.0])
    assert table.columns[1].tolist() == ["x", None, "z"]
    for place in range(3):
        assert table.missing(place).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("\ufeffa;b\n1;2\n", "bom.csv"),
        ("a\tb\n1\t2\n", "tabs.tsv"),
        ("a,b\n1,2\n", "commas.txt"),
    ],
)
def test_separators_and_byte_order_marks(tmp_path, text, name):
    table = read_table(write(tmp_path, text, name))
    assert table.names == ("a", "b")
    assert [column.tolist() for column in table.columns] == [[1], [2]]


def test_compressed_csv(tmp_path):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert read_table(path).names == ("a", "b")


def test_parquet_is_read_like_csv(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {
            "a": [1, 2, 3],
            "b": [0.5, None, 2.0],
            "c": ["x", None, "z"],
            "d": pd.Categorical(["u", "v", "u"]),
            "e": pd.array([1, None, 3], "Int64"),
            "f": pd.array([True, None, False], "boolean"),
        }
    )
    frame.to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.kinds == ("integer", "real", "text", "text", "real", "real")
    assert table.columns[3].tolist() == ["u", "v", "u"]
    assert table.missing(2).tolist() == [False, True, False]
    np.testing.assert_equal(table.columns[5], [1.0, np.nan, 0.0])


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("a,a\n1,2\n", "twice.csv", "several columns of the name 'a'"),
        ("a,b\n", "empty.csv", "no rows"),
        ("", "nothing.csv", "cannot be read"),
        ("a,b\n1,2,3\n4,5,6\n", "surplus.csv", "cannot be read"),
        ("a,b\n1,2\n4,5,6\n", "ragged.csv", "cannot be read"),
        ("a,b\n1,2\n", "table.xlsx", "path must end in one of"),
        ("no table", "broken.parquet", "cannot be read"),
    ],
)
def test_bad_files_are_named(tmp_path, text, name, said):
    with pytest.raises(ValueError, match=said):
        read_table(write(tmp_path, text, name))


def test_a_missing_file_and_a_missing_column_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv")
    table = read_table(write(tmp_path, "a,b\n1,2\n"))
    with pytest.raises(ValueError, match=r"target must be a column of the file \('a', 'b'\)"):
        table.place("target", "c")
