"""Tables from files: CSV (also compressed), TSV and Parquet, as NumPy columns with their kinds.

pandas reads them (`pipla[pandas]`; Parquet: `pipla[parquet]`). What comes out is plain NumPy, so
that nothing above depends on how a version of pandas represents text or missing values. What a text
file has beside commas and plain numbers is recognised (`_dialects`, `_text_columns`), and said.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from pipla import _checks, _files
from pipla._dialects import SPACES, data_of, dialect_of, doubtful_marks, listed
from pipla._extras import extra
from pipla._text_columns import (
    almost,
    dates_in_integers,
    dates_of,
    days_of,
    numbers_of,
    two_marks,
    words_among_numbers,
)

#: What a column holds.
Kind = Literal["integer", "real", "boolean", "text", "date"]

#: Endings of text files; any of them may be compressed.
_TEXT = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data")
_TABS = (".tsv", ".tab")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
_PARQUET = (".parquet", ".pq")
#: Names of columns that tell rows apart: index, rownames, Unnamed: 0; id, user_id; PassengerId.
_IDENTIFIER = re.compile(
    r"^(?i:index|idx|row|row ?(names?|id|number)|obs|unnamed: \d+)$"
    r"|(^|[_ .-])(?i:id)([_ .-]|$)|[a-z]I[dD]$"
)


class Table(NamedTuple):
    """Columns of equal length.

    Attributes:
        names: the name of each column; no two are equal.
        columns: `int64` for integers, `float64` for reals (missing: NaN), `bool` for booleans, and
            `object` arrays of `str` for text (missing: `None`). Integers and booleans with missing
            values are reals. Dates are `float64`: days since 1970-01-01.
        kinds: what each column holds: `"integer"`, `"real"`, `"boolean"`, `"text"` or `"date"`.
        unnamed: the places of columns that have no name beside others that have one.
        notes: what was recognised and is not plain, one sentence each.
        words: of columns of numbers, what is said of the words in them, which are missing values.
    """

    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]
    kinds: tuple[Kind, ...]
    unnamed: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    words: Mapping[str, str] = MappingProxyType({})

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
        return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), bool)

    def is_index(self, place: int) -> bool:
        """Whether a column numbers the rows or names them.

        It is the first column and has no name; or it has another integer in every row and the name
        of an identifier; or it is the first column and holds the integers from 0 or 1 on, in any
        order. Years and other integers in the first column may be features.
        """
        if self.kinds[place] != "integer" or self.num_rows < 2:
            return False
        if place == 0 and place in self.unnamed:
            return True
        column = self.columns[place]
        if len(np.unique(column)) < len(column):
            return False
        if _IDENTIFIER.search(self.names[place]):
            return True
        first = int(column.min())
        return place == 0 and first in (0, 1) and int(column.max()) - first == len(column) - 1


def read_table(path: str | Path, *, dates: bool = True, decimal: str = "auto") -> Table:
    """The table in a file; its format is told by its ending.

    Arguments:
        path: a text file, also compressed (`.csv.gz`), or Parquet. Separators (commas, semicolons,
            tabs, vertical bars, spaces), encoding, decimal mark and thousands separators, comments
            (#) and whether the first line holds names are recognised.
        dates: whether dates become numbers; otherwise they are text.
        decimal: `"."` or `","`; by default the file tells.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read as a table, has no rows, or two columns have one name.
    """
    _checks.choice("decimal", decimal, ("auto", ".", ","))
    file = _files.checked_path("path", path)
    if not file.is_file():
        raise FileNotFoundError(f"path {str(file)!r} is not a file.")
    ending = _ending(file)
    try:
        read = _parquet(file) if ending in _PARQUET else _text(file, ending, decimal)
    except ImportError:
        raise  # a missing extra
    except Exception as error:  # readers raise whatever their file format raises
        said = " ".join(str(error).split())
        raise ValueError(f"path {str(file)!r} cannot be read as a table: {said}") from error
    names = tuple(read.names)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"path {str(file)!r} has several columns of the name {twice!r}.")
    if not names or not len(read.frame):
        raise ValueError(f"path {str(file)!r} has no rows of data.")
    events = _Said()
    series = (read.frame.iloc[:, i] for i in range(len(names)))
    found = [_column(name, s, read, dates, events) for name, s in zip(names, series, strict=True)]
    columns, kinds = zip(*found, strict=True)
    notes = (*read.notes, *events.sentences(read))
    return Table(names, columns, kinds, read.unnamed, notes, events.words)


def _ending(file: Path) -> str:
    endings = [suffix.lower() for suffix in file.suffixes]
    if endings and endings[-1] in _COMPRESSED:
        endings.pop()
    ending = endings[-1] if endings else ""
    if ending not in _TEXT + _PARQUET:
        raise ValueError(
            f"path must end in one of {', '.join(_TEXT + _PARQUET)} (text also compressed: "
            f".csv.gz; save a spreadsheet as CSV); got {file.name!r}."
        )
    return ending


class _Read(NamedTuple):
    """A frame with the names of its columns, and what is known of the file.

    Attributes:
        frame: the columns, as pandas reads them.
        names: of the columns.
        unnamed, notes: as in `Table`.
        decimal: the decimal mark of the file.
        is_settled: whether that is certain.
        is_european: whether dates such as 1/2/2024 begin with the day if nothing else tells.
    """

    frame: Any
    names: list[str]
    unnamed: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    decimal: str = "."
    is_settled: bool = True
    is_european: bool = False


def _parquet(file: Path) -> _Read:
    with extra("parquet", "reading Parquet files"):
        import pandas as pd

        # pandas would choose another engine, or name it differently.
        importlib.import_module("pyarrow")
    frame = pd.read_parquet(file, engine="pyarrow")
    return _Read(frame, [str(name) for name in frame.columns])


def _text(file: Path, ending: str, decimal: str) -> _Read:
    with extra("pandas", "reading tables"):
        import pandas as pd
    dialect = dialect_of(file, ending in _TABS, decimal)
    places, notes = range(len(dialect.names)), list(dialect.notes)
    with warnings.catch_warnings(), data_of(file, dialect) as (rows, comments):
        # Without an index column, pandas drops surplus fields with a warning; we refuse them.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            rows,
            sep=dialect.delimiter,
            quotechar=dialect.quote,
            decimal=dialect.decimal,
            header=None,
            names=list(places),
            index_col=False,
            skipinitialspace=dialect.delimiter != SPACES,
            low_memory=False,  # a column is numbers or text as a whole
        )
    if comments:
        notes.append(f"{comments} line{'s' * (comments > 1)} beginning with # left out.")
    # Lines that end with a separator have one more field, which is empty.
    if len(places) > 1 and not dialect.names[-1] and frame.iloc[:, -1].isna().all():
        frame, places = frame.iloc[:, :-1], places[:-1]
    names = [dialect.names[i] or f"column {i + 1}" for i in places]
    unnamed = tuple(i for i in places if dialect.has_header and not dialect.names[i])
    european = dialect.decimal == "," or dialect.delimiter == ";"
    return _Read(frame, names, unnamed, tuple(notes), dialect.decimal, dialect.is_settled, european)


class _Said:
    """What happened to columns: names by what is said of them."""

    def __init__(self) -> None:
        self.grouped: list[str] = []
        self.doubtful: list[str] = []
        self.units: dict[str, list[str]] = {}
        self.dates: dict[str, list[str]] = {}
        self.doubtful_dates: dict[str, list[str]] = {}
        self.words: dict[str, str] = {}
        self.others: list[str] = []

    def sentences(self, read: _Read) -> list[str]:
        """One for each kind of event."""
        found = []
        if self.grouped:
            found.append(f"Thousands separators were removed from {listed(self.grouped)}.")
        if self.doubtful:
            mark = "," if read.decimal == "." else "."
            found.append(doubtful_marks(self.doubtful, mark, "thousands separator"))
        for unit, names in self.units.items():
            found.append(f"The unit {unit} was left out of {listed(names)}.")
        for order, names in self.dates.items():
            how = f" ({order})" if order else ""
            found.append(f"Dates{how} count as days since 1970-01-01: {listed(names)}.")
        for order, names in self.doubtful_dates.items():
            found.append(
                f"Dates in {listed(names)} may begin with the day or with the month; they were "
                f"read with the {order}, and count as days since 1970-01-01. Written as "
                "2024-12-31, they are certain."
            )
        return [*found, *self.words.values(), *self.others]


def _column(
    name: str, series: Any, read: _Read, dates: bool, said: _Said
) -> tuple[np.ndarray, Kind]:
    """The values of a column and their kind."""
    from pandas.api import types

    dtype, gaps = series.dtype, bool(series.isna().any())
    if isinstance(dtype, types.CategoricalDtype):
        series = series.astype(dtype.categories.dtype if not gaps else object)
        dtype = series.infer_objects().dtype
    if types.is_bool_dtype(dtype):
        if not gaps:
            return series.to_numpy(bool), "boolean"
        return series.to_numpy(np.float64, na_value=np.nan), "real"
    # Integers beyond 64 bits with a sign are reals.
    if types.is_integer_dtype(dtype) and not gaps and series.max() < 2**63:
        values = series.to_numpy(np.int64)
        days = dates_in_integers(values) if dates else None
        if days is None:
            return values, "integer"
        said.dates.setdefault("year, month, day as one number", []).append(name)
        return days, "date"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return series.to_numpy(np.float64, na_value=np.nan), "real"
    if types.is_datetime64_any_dtype(dtype) and dates:
        said.dates.setdefault("", []).append(name)
        return days_of(series), "date"
    return _text_column(name, series, read, dates, said)


def _text_column(
    name: str, series: Any, read: _Read, dates: bool, said: _Said
) -> tuple[np.ndarray, Kind]:
    """Numbers or dates, if all texts are, or all but a few words among numbers.

    Each different text is looked at once.
    """
    import pandas as pd

    codes, different = pd.factorize(series)
    texts = [str(value).strip() for value in different.tolist()]
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    numbers = numbers_of(texts, read.decimal) if texts else None
    words = words_among_numbers(texts, counts) if numbers is None else None
    if words is not None:
        bare = ["" if is_word else text for text, is_word in zip(texts, words, strict=True)]
        numbers = numbers_of(bare, read.decimal)
    if numbers is not None:
        if words is not None:
            said.words[name] = _about_words(name, texts, counts, words)
        if numbers.is_doubtful and not read.is_settled:
            said.doubtful.append(name)
        elif numbers.are_grouped:
            said.grouped.append(name)
        if numbers.unit:
            said.units.setdefault(numbers.unit, []).append(name)
        values = np.append(numbers.values, np.nan)[codes]  # -1, the last, is missing
        if numbers.are_whole and not np.isnan(values).any():
            return values.astype(np.int64), "integer"
        return values, "real"
    if texts and dates and (found := dates_of(texts, read.is_european)) is not None:
        where = said.doubtful_dates if found.is_doubtful else said.dates
        where.setdefault(found.order, []).append(name)
        return np.append(found.days, np.nan)[codes], "date"
    what, value, others = almost(texts, counts)
    if others and (dates or what == "numbers"):
        are = "value is not" if others == 1 else "values are not"
        said.others.append(
            f"Column {name!r} is text: it holds {what}, but {others} {are}, such as {value!r}."
        )
    elif (marks := two_marks(texts)) is not None:
        said.others.append(
            f"Column {name!r} is text: it holds numbers with two decimal marks, such as "
            f"{marks[0]!r} and {marks[1]!r}; write them with one."
        )
    return np.array([*texts, None], object)[codes], "text"


def _about_words(name: str, texts: list[str], counts: np.ndarray, words: np.ndarray) -> str:
    """A sentence about the words in a column of numbers."""
    shown = listed([text for text, is_word in zip(texts, words, strict=True) if is_word])
    number, all_values = int(counts[words].sum()), int(counts.sum())
    verb = "is no number" if number == 1 else "are no numbers"
    count = "counts" if number == 1 else "count"
    return f"{number} of {all_values} values of {name!r} {verb} ({shown}) and {count} as missing."
