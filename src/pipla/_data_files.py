"""Tables from files: CSV (also compressed), TSV and Parquet, as NumPy columns with their kinds.

pandas reads them (`pipla[pandas]`; Parquet: `pipla[parquet]`). What comes out is plain NumPy, so
that nothing above depends on how a version of pandas represents text or missing values.
"""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from pipla import _files
from pipla._extras import extra

#: What a column holds.
Kind = Literal["integer", "real", "boolean", "text"]

#: Endings of files of comma- or tab-separated values; any of them may be compressed.
_TEXT = (".csv", ".tsv", ".txt")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
_PARQUET = (".parquet", ".pq")


class Table(NamedTuple):
    """Columns of equal length.

    Attributes:
        names: the name of each column; no two are equal.
        columns: `int64` for integers, `float64` for reals (missing: NaN), `bool` for booleans, and
            `object` arrays of `str` for text (missing: `None`). Integers and booleans with missing
            values are reals.
        kinds: what each column holds: `"integer"`, `"real"`, `"boolean"` or `"text"`.
    """

    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]
    kinds: tuple[Kind, ...]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0])

    def place(self, argument: str, name: str) -> int:
        """The position of a column, or an error that names the argument and the columns."""
        if name not in self.names:
            shown = ", ".join(map(repr, self.names[:20]))
            shown += ", ..." if len(self.names) > 20 else ""
            raise ValueError(f"{argument} must be a column of the file ({shown}); got {name!r}.")
        return self.names.index(name)

    def missing(self, place: int) -> np.ndarray:
        """Where a column has no value."""
        column = self.columns[place]
        if self.kinds[place] == "text":
            return np.array([value is None for value in column], bool)
        return np.isnan(column) if self.kinds[place] == "real" else np.zeros(len(column), bool)


def read_table(path: str | Path) -> Table:
    """The table in a file; its format is told by its ending.

    Arguments:
        path: a CSV file (comma or semicolon), `.tsv`, either also compressed (`.csv.gz`), or
            Parquet. The first line of a text file holds the names of the columns.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read as a table, has no rows, or two columns have one name.
    """
    file = _files.checked_path("path", path)
    if not file.is_file():
        raise FileNotFoundError(f"path {str(file)!r} is not a file.")
    ending = _ending(file)
    try:
        frame = _parquet(file) if ending in _PARQUET else _text(file, ending)
    except ImportError:
        raise  # a missing extra
    except Exception as error:  # readers raise whatever their file format raises
        said = " ".join(str(error).split())
        raise ValueError(f"path {str(file)!r} cannot be read as a table: {said}") from error
    names = tuple(str(name) for name in frame.columns)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"path {str(file)!r} has several columns of the name {twice!r}.")
    if not names or not len(frame):
        raise ValueError(f"path {str(file)!r} has no rows of data.")
    columns, kinds = zip(*(_column(frame.iloc[:, i]) for i in range(len(names))), strict=True)
    return Table(names, columns, kinds)


def _ending(file: Path) -> str:
    endings = [suffix.lower() for suffix in file.suffixes]
    if endings and endings[-1] in _COMPRESSED:
        endings.pop()
    ending = endings[-1] if endings else ""
    if ending not in _TEXT + _PARQUET:
        raise ValueError(
            f"path must end in one of {', '.join(_TEXT + _PARQUET)} (text also compressed: "
            f".csv.gz); got {file.name!r}."
        )
    return ending


def _parquet(file: Path) -> Any:
    with extra("parquet", "reading Parquet files"):
        import pandas as pd

        # pandas would choose another engine, or name it differently.
        importlib.import_module("pyarrow")
    return pd.read_parquet(file, engine="pyarrow")


def _text(file: Path, ending: str) -> Any:
    with extra("pandas", "reading tables"):
        import pandas as pd
    options: dict[str, Any] = {"encoding": "utf-8-sig"}
    separator = "\t" if ending == ".tsv" else ","
    head = pd.read_csv(file, sep=separator, header=None, nrows=1, dtype=str, **options)
    if separator == "," and head.shape[1] == 1 and ";" in str(head.iloc[0, 0]):
        separator = ";"
        head = pd.read_csv(file, sep=separator, header=None, nrows=1, dtype=str, **options)
    with warnings.catch_warnings():
        # Without an index column, pandas drops surplus fields with a warning; we refuse them.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)  # mixed columns become text
        frame = pd.read_csv(file, sep=separator, index_col=False, **options)
    # pandas renames the second of two equal names; the names are those in the file.
    unnamed = head.iloc[0].isna()
    frame.columns = [
        f"column {i + 1}" if unnamed.iloc[i] else str(head.iloc[0, i])
        for i in range(frame.shape[1])
    ]
    return frame


def _column(series: Any) -> tuple[np.ndarray, Kind]:
    from pandas.api import types

    dtype, gaps = series.dtype, bool(series.isna().any())
    if isinstance(dtype, types.CategoricalDtype):
        series = series.astype(dtype.categories.dtype if not gaps else object)
        dtype = series.infer_objects().dtype
    if types.is_bool_dtype(dtype):
        if not gaps:
            return series.to_numpy(bool), "boolean"
        return series.to_numpy(np.float64, na_value=np.nan), "real"
    if types.is_integer_dtype(dtype) and not gaps:
        return series.to_numpy(np.int64), "integer"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return series.to_numpy(np.float64, na_value=np.nan), "real"
    missing = series.isna().to_numpy()
    values = np.array([str(value) for value in series], object)
    values[missing] = None
    return values, "text"
