"""How a text file writes its table: encoding, separators, comments, header and decimal mark.

The rules look at the beginning of a file, in a fixed order, and keep no scores. Only the encoding
and comment lines are looked for in the whole file, which is read in blocks. pandas then reads it in
one go.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from pipla._text_columns import ERRORS, has_mark, is_missing, is_number, marks_of

#: Characters at the beginning of a file that tell how it is written.
_SAMPLE = 1 << 18
#: Characters of a file that are in memory while its encoding is checked.
_BLOCK = 1 << 22
#: Separators in the order in which they are tried. A comma comes last, because it also occurs in
#: numbers; a semicolon occurs in texts, but hardly as often in every line, the header included.
_DELIMITERS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas"}
#: The separator of columns that any number of spaces separates.
SPACES = r"\s+"
#: Encodings without a byte order mark. The last one has a letter for every byte.
_ENCODINGS = {"utf-8": "", "cp1252": "Windows-1252 letters", "latin-1": "Latin-1 letters"}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Dialect(NamedTuple):
    """How a file is to be read.

    Attributes:
        encoding: of its text.
        delimiter: between two fields; `SPACES` for any number of spaces.
        quote: around fields.
        comments: whether lines that begin with # are left out.
        skipped: the lines (without comments) before the first row of data.
        names: of the columns; empty where the file has none.
        has_header: whether the names are those of the file.
        decimal: the decimal mark.
        is_settled: whether numbers of the file, or the user, tell the decimal mark.
        notes: sentences about what is not plain.
    """

    encoding: str
    delimiter: str
    quote: str
    comments: bool
    skipped: int
    names: tuple[str, ...]
    has_header: bool
    decimal: str
    is_settled: bool
    notes: tuple[str, ...]


class _Record(NamedTuple):
    """The fields of a row, and the numbers of lines before it and up to its end."""

    fields: list[str]
    begin: int
    end: int


def dialect_of(file: Path, tabs: bool, decimal: str = "auto") -> Dialect:
    """The dialect of a text file, from its beginning.

    Arguments:
        file: the file; it may be compressed.
        tabs: whether its ending says that tabs separate its columns.
        decimal: `"auto"`, `"."` or `","`.

    Raises:
        ValueError: the file is empty, not text, or its rows have more fields than it has names.
    """
    encoding, said, has_comments = _encoding(file)
    with opened(file, encoding) as stream:
        text, is_whole = stream.read(_SAMPLE), not stream.read(1)
    lines = list(io.StringIO(text, newline=""))
    lines = lines if is_whole or len(lines) < 2 else lines[:-1]
    marked = [line for line in lines if _is_comment(line)]
    # Where most lines begin with #, it is part of the data: colours, or numbers of issues.
    comments = has_comments and 2 * len(marked) <= len(lines)
    if comments:
        lines = [line for line in lines if not _is_comment(line)]
    quote = "'" if next((line for line in lines if line.strip()), "").startswith("'") else '"'
    hint = re.fullmatch(r'"?sep=(.)"?\s*', lines[0]) if lines else None  # by Excel, for Excel
    delimiter = hint[1] if hint else "\t" if tabs else _delimiter(lines, quote)
    records = _records(lines, delimiter, quote)[1 if hint else 0 :]
    if not records:
        raise ValueError("it is empty.")
    width = _width(records)
    first = _title_lines(records, width)
    records = records[first:]
    parts = [f"{_between(delimiter)} between its columns"] if delimiter != "," else []
    parts = ([] if tabs else parts) + said
    parts += ["single quotes around its texts"] if quote == "'" else []
    parts += [f"{first} line{'s' * (first > 1)} above the table left out"] if first else []
    has_header = _has_header(records, width)
    above = _records([line.lstrip("# ") for line in marked[:1] if comments], delimiter, quote)
    names, notes = _names(records, has_header, above, width)
    data = records[1:] if has_header else records
    names = _one_per_field(names, data, width)
    mark, is_settled, doubtful = _decimal(names, data, delimiter, decimal)
    parts += ["decimal commas"] if mark == "," and is_settled and decimal == "auto" else []
    if parts:
        notes.insert(0, f"The file was read with {_and(parts)}.")
    if doubtful:
        notes.append(doubtful_marks(doubtful, mark, "decimal mark"))
    return Dialect(
        encoding=encoding,
        delimiter=delimiter,
        quote=quote,
        comments=comments,
        skipped=records[0].end if has_header else records[0].begin,
        names=tuple(name.strip() for name in names),
        has_header=any(names),
        decimal=mark,
        is_settled=is_settled,
        notes=tuple(notes),
    )


@contextmanager
def opened(file: Path, encoding: str) -> Iterator[TextIO]:
    """The text of a file that may be compressed, with its own ends of lines."""
    from pandas.io.common import get_handle

    with (
        get_handle(file, "rb", compression="infer", is_text=False) as found,
        io.TextIOWrapper(found.handle, encoding, newline="") as stream,
    ):
        yield stream


@contextmanager
def data_of(file: Path, dialect: Dialect) -> Iterator[tuple[TextIO, int]]:
    """The rows of data, without header and comments; and how many comments were left out."""
    with opened(file, dialect.encoding) as stream:
        source, comments = stream, 0
        if dialect.comments:
            lines = list(stream)
            kept = [line for line in lines if not _is_comment(line)]
            comments, source = len(lines) - len(kept), io.StringIO("".join(kept), newline="")
        for _ in range(dialect.skipped):
            source.readline()
        yield source, comments


def _is_comment(line: str) -> bool:
    return line.startswith("#") and not line.startswith(ERRORS)


def _encoding(file: Path) -> tuple[str, list[str], bool]:
    """The encoding, what is to be said of it, and whether a line begins with #."""
    with opened(file, "latin-1") as stream:
        head = stream.read(4096).encode("latin-1")
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    if marked is None and b"\0" in head:
        # Of letters that ASCII has, UTF-16 has one byte that is 0.
        marked = "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
        if max(head[1::2].count(0), head[::2].count(0)) < len(head) // 4:
            raise ValueError("it is not a text file.")
    for name, said in [(marked, "")] if marked else _ENCODINGS.items():
        try:
            has_comments = _any_comment(file, name)
        except UnicodeDecodeError:
            if name == marked:
                raise
            continue
        said = f"{name[:6].upper()} letters" if name.startswith(("utf-16", "utf-32")) else said
        return name, [said] if said else [], has_comments
    raise AssertionError  # Latin-1 has a letter for every byte


def _any_comment(file: Path, encoding: str) -> bool:
    """Whether a line begins with #; the whole file is decoded."""
    found, last = False, "\n"
    with opened(file, encoding) as stream:
        while block := stream.read(_BLOCK):
            found = found or "\n#" in last + block or "\r#" in last + block
            last = block[-1]
    return found


def _records(lines: Sequence[str], delimiter: str, quote: str) -> list[_Record]:
    """The rows in some lines, without blank ones."""
    if delimiter == SPACES:
        lines = [line.strip().replace("\t", " ") for line in lines]
    character = " " if delimiter == SPACES else delimiter
    reader = csv.reader(lines, delimiter=character, quotechar=quote, skipinitialspace=True)
    found, begin = [], 0
    for fields in reader:
        if any(field.strip() for field in fields) or len(fields) > 1:
            found.append(_Record([field.strip() for field in fields], begin, reader.line_num))
        begin = reader.line_num
    return found


def _delimiter(lines: list[str], quote: str) -> str:
    """The first separator that divides most rows, and the first one, into equally many fields."""
    for is_titled in (False, True):  # a line above the table makes no difference, if need be
        for delimiter in _DELIMITERS:
            records = _records(lines, delimiter, quote)
            width = _width(records)
            counts = [len(record.fields) for record in records]
            head = counts[_title_lines(records, width) if is_titled else 0] if counts else 0
            if (
                min(head, width) > 1 >= abs(head - width)
                and 2 * counts.count(width) > len(counts) - 1
            ):
                return delimiter
    counts = [len(record.fields) for record in _records(lines, SPACES, quote)]
    if counts and min(counts[1:], default=1) > 1 and len(set(counts[1:])) == 1:
        # In R, names of rows have no name.
        return SPACES if counts[0] in (counts[-1], counts[-1] - 1) else ","
    return ","


def _width(records: list[_Record]) -> int:
    """The number of fields that most rows have."""
    counts = Counter(len(record.fields) for record in records[1:] or records)
    return counts.most_common(1)[0][0] if counts else 0


def _title_lines(records: list[_Record], width: int) -> int:
    """The number of rows above the table: they have one field, or only one that is not empty."""
    for place, record in enumerate(records[:-1]):
        texts = sum(bool(field) for field in record.fields)
        if not (width > 1 and len(record.fields) == 1) and not (width > 2 and texts <= 1):
            return place
    return 0


def _has_header(records: list[_Record], width: int) -> bool:
    """Whether the first row holds names.

    It does if it has no number, or a text above numbers. Numbers are names if they count (0, 1, 2
    or 1, 2, 3), or are years.
    """
    head = records[0].fields
    if not any(map(is_number, head)):
        return True
    shift = width - len(head)
    for place, name in enumerate(head):
        below = [r.fields[place + shift] for r in records[1:] if len(r.fields) > place + shift >= 0]
        below = [field for field in below if not is_missing(field)]
        if below and not is_missing(name) and not is_number(name) and all(map(is_number, below)):
            return True
    digits = [int(name) for name in head if name.isdigit()]
    if len(digits) < sum(map(is_number, head)) or len(digits) < 2:
        return False
    years = all(1800 <= year < 2200 for year in digits) and digits == sorted(set(digits))
    return years or (len(digits) > 2 and digits == [*range(digits[0], digits[0] + len(digits))])


def _names(
    records: list[_Record], has_header: bool, above: list[_Record], width: int
) -> tuple[list[str], list[str]]:
    """The names in the first row, or in a comment above the data; and a sentence about them."""
    if has_header:
        names = records[0].fields
        if not any(map(is_number, names)):
            return names, []
        said = f"The first line was read as names, though it holds numbers: {listed(names)}."
        return names, [said]
    if above and len(above[0].fields) == width:
        return above[0].fields, ["The first comment was read as the names of the columns."]
    said = (
        "The first line holds data, not names: the columns are called 'column 1', 'column 2' and "
        "so on."
    )
    return [""] * width, [said]


def _one_per_field(names: list[str], data: list[_Record], width: int) -> list[str]:
    """Names for all fields: an end of lines may be one field, and so may be names of rows."""
    full = [record.fields for record in data if len(record.fields) == width]
    if len(names) == width + 1 and not names[-1]:
        return names[:-1]
    if len(names) == width - 1 and full:
        if not any(fields[-1] for fields in full):
            return [*names, ""]
        if [fields[0] for fields in full] == [str(i + 1) for i in range(len(full))] or not any(
            is_number(fields[0]) for fields in full
        ):
            return ["", *names]
    if len(names) < width:
        raise ValueError(
            f"its rows have {width} fields, but its first line has {len(names)} names."
        )
    return names


def _decimal(
    names: Sequence[str], data: list[_Record], delimiter: str, given: str
) -> tuple[str, bool, list[str]]:
    """The decimal mark, whether it is certain, and columns whose numbers leave it open."""
    if given != "auto":
        return given, True, []
    seen: set[str] = set()
    unclear: dict[str, list[str]] = {".": [], ",": []}
    for place, name in enumerate(names):
        fields = [r.fields[place] for r in data if len(r.fields) > place]
        fields = [field for field in fields if not is_missing(field)]
        marks = marks_of(fields) if fields else set()
        if len(marks) == 1 and has_mark(fields):
            seen |= marks
        elif len(marks) == 2:
            for mark in unclear:
                unclear[mark] += [name or f"column {place + 1}"] if has_mark(fields, mark) else []
    if len(seen) == 1:
        return seen.pop(), True, []
    # Semicolons separate columns where commas are decimal marks. Elsewhere a comma in groups of
    # three separates thousands.
    if delimiter == ";" and not seen:
        mark = "." if unclear["."] and not unclear[","] else ","
        return mark, False, unclear[mark]
    return ".", False, []


def doubtful_marks(names: Sequence[str], mark: str, reading: str) -> str:
    """A sentence about columns such as 1,234, whose comma may be a decimal one or not."""
    word = "comma" if mark == "," else "point"
    contrary = mark if reading == "thousands separator" else {".": ",", ",": "."}[mark]
    return (
        f"Each {word} in {listed(names)} has three digits behind it and was read as a {reading}; "
        f"if that is wrong, add --decimal {contrary!r} (decimal={contrary!r})."
    )


def _between(delimiter: str) -> str:
    return "spaces" if delimiter == SPACES else _DELIMITERS.get(delimiter, repr(delimiter))


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def listed(names: Sequence[str], most: int = 5, quoted: bool = True) -> str:
    """Some names in a sentence: the first few, and how many there are beside them.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = [repr(str(name)) if quoted else name for name in names[:most]]
    return _and([*shown, f"{len(names) - most} more"] if len(names) > most else shown)
