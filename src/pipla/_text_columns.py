"""Numbers and dates that a table holds as text: 1.234,5 and $1,234.50, 31.12.2024 and Dec 31, 2024.

A column is read as numbers or as dates only if each of its values is one, in the same notation; or
as numbers if nine tenths are and the others are words ("k.A.", "broken"), which count as missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

#: What stands for a missing value among numbers or dates, beside what pandas knows (NA, null, ...).
#: The last are errors of spreadsheets.
ERRORS = ("#N/A", "#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")
_MISSING = frozenset({"", "-", "--", "?", ".", "*", "na", "n.a.", "n.a", "none", "missing"}).union(
    error.lower() for error in ERRORS
)
_LONGEST = max(map(len, _MISSING))
#: Characters that look like a space, an apostrophe or a minus sign.
_ALIKE = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2019": "'", "\u2212": "-"})
_CURRENCIES = "$€£¥"
_UNIT = re.compile(rf"(-?)([{_CURRENCIES}]?) ?(.*?) ?([%{_CURRENCIES}]?)", re.DOTALL)
#: So many values are tried before a whole column is.
_FIRST = 20


def _number(point: str, group: str) -> re.Pattern[str]:
    """Numbers with this decimal mark, whose thousands are separated by `group`, ' or a space."""
    grouped = rf"[1-9]\d{{0,2}}(?:([{group}' ])\d{{3}}(?:\1\d{{3}})*)"
    return re.compile(rf"[+-]?(?=[^eE]*\d)(?:{grouped}|\d*)(?:[{point}]\d*)?(?:[eE][+-]?\d+)?")


_NUMBER = {".": _number(".", ","), ",": _number(",", ".")}


def is_missing(text: str) -> bool:
    """Whether a value among numbers or dates, without spaces around it, is a missing one."""
    return len(text) <= _LONGEST and text.lower() in _MISSING


def is_number(text: str) -> bool:
    """Whether a text is a number in some notation."""
    text, _ = _bare(text)
    return any(pattern.fullmatch(text) for pattern in _NUMBER.values())


def marks_of(texts: Iterable[str]) -> set[str]:
    """The decimal marks with which each text is a number; both for 12 and for 1,234."""
    return _marks([_bare(text)[0] for text in texts])


def _marks(bare: Sequence[str]) -> set[str]:
    return {mark for mark, rule in _NUMBER.items() if all(rule.fullmatch(text) for text in bare)}


def has_mark(texts: Iterable[str], marks: str = ".,") -> bool:
    """Whether some text has one of these marks, so that it matters which is the decimal one."""
    return any(mark in text for text in texts for mark in marks)


class Numbers(NamedTuple):
    """Numbers that were text.

    Attributes:
        values: one for each text, NaN where it is missing.
        are_whole: whether all are integers.
        are_grouped: whether thousands were separated.
        is_doubtful: whether both decimal marks were possible, and the answer depends on them.
        unit: a currency or %, which was left out.
    """

    values: np.ndarray
    are_whole: bool
    are_grouped: bool
    is_doubtful: bool
    unit: str


def numbers_of(texts: Sequence[str], decimal: str) -> Numbers | None:
    """The numbers that these texts are; `None` if one of them is none.

    Arguments:
        texts: different values of a column.
        decimal: the decimal mark where both are possible, as in 1,234.
    """
    known = np.array([not is_missing(text) for text in texts], bool)
    present = [text for text, is_known in zip(texts, known, strict=True) if is_known]
    if not present or not marks_of(present[:_FIRST]):
        return None
    pairs = [_bare(text) for text in present]
    bare, unit = [text for text, _ in pairs], pairs[0][1]
    marks = _marks(bare)
    if not marks or any(other != unit for _, other in pairs):
        return None
    mark = decimal if decimal in marks else next(iter(marks))
    other = {".": ",", ",": "."}[mark]
    plain = [
        text.replace(other, "").replace("'", "").replace(" ", "").replace(",", ".") for text in bare
    ]
    found = np.array(plain).astype(np.float64)
    values = np.full(len(texts), np.nan)
    values[known] = found
    whole = not any(c in text for text in plain for c in ".eE") and np.all(np.abs(found) < 2**53)
    return Numbers(
        values=values,
        are_whole=bool(whole),
        are_grouped=any(len(p) < len(b) for p, b in zip(plain, bare, strict=True)),
        is_doubtful=len(marks) == 2 and has_mark(bare),
        unit=unit,
    )


def _bare(text: str) -> tuple[str, str]:
    """A text without a unit, and its unit."""
    text = (text if text.isascii() else text.translate(_ALIKE)).strip()
    if text[-1:].isdigit() and text[:1].isdigit():
        return text, ""
    sign, before, rest, after = _UNIT.fullmatch(text).groups()  # type: ignore[union-attr]
    return (text, "") if before and after else (sign + rest, before or after)


class Dates(NamedTuple):
    """Dates that were text.

    Attributes:
        days: since 1970-01-01, one for each text, NaN where it is missing.
        order: `"day first"` or `"month first"`, where the texts leave a choice; otherwise empty.
        is_doubtful: whether both orders were possible.
    """

    days: np.ndarray
    order: str
    is_doubtful: bool


_TIME = (
    r"(?:(?P<gap>T|,? +)(?P<time>\d{1,2}:\d{2}(?P<s>:\d{2}(?P<f>\.\d+)?)?)(?P<half> ?[AaPp][Mm])?)?"
)
_ISO = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?( ?Z|[+-]\d{2}:?\d{2})?)?)?")
_YEAR_FIRST = re.compile(r"\d{4}(?P<sep>[-/.])\d{1,2}(?P=sep)\d{1,2}" + _TIME)
_YEAR_LAST = re.compile(r"\d{1,2}(?P<sep>[-/.])\d{1,2}(?P=sep)(?P<year>\d{4}|\d{2})" + _TIME)
_NAMED = re.compile(
    r"(?=.*[A-Za-z]{3})(\d{1,2}\.?[ -])?[A-Za-z]{3,9}\.?[ -](\d{1,2},? )?\d{2,4}" + _TIME
)
_NAMED_FORMATS = ("%b %d %Y", "%B %d %Y", "%d %b %Y", "%d %B %Y", "%d %b %y", "%b %Y", "%B %Y")


def dates_of(texts: Sequence[str], day_first: bool) -> Dates | None:
    """The dates that these texts are; `None` if one of them is none.

    Arguments:
        texts: different values of a column.
        day_first: whether 1/2/2024 is the first of February, where no value of the column tells.
    """
    known = [text.strip() for text in texts if not is_missing(text)]
    if not known:
        return None
    formats, known = _formats(known)
    found = []
    for order, form in formats:
        if _parsed(known[:_FIRST], form) is not None:
            days = _parsed(known, form)
            found += [] if days is None else [(order, days)]
    if not found:
        return None
    is_doubtful = len(found) == 2 and not np.array_equal(found[0][1], found[1][1])
    order, days = found[0]
    if is_doubtful:
        order, days = found[0 if day_first else 1]
    values = np.full(len(texts), np.nan)
    values[[not is_missing(text) for text in texts]] = days
    return Dates(values, order, is_doubtful)


def _formats(texts: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The possible orders and formats, told by the first text; and the texts as these want them."""
    first = texts[0]
    if _ISO.fullmatch(first):
        return [("", "ISO8601")], texts
    if shape := _YEAR_FIRST.fullmatch(first):
        return [("", "%Y{0}%m{0}%d".format(shape["sep"]) + _clock(shape))], texts
    if shape := _YEAR_LAST.fullmatch(first):
        end = shape["sep"] + ("%Y" if len(shape["year"]) == 4 else "%y") + _clock(shape)
        day, month = (f"{form}{end}" for form in ("%d{0}%m", "%m{0}%d"))
        return [
            (o, f.format(shape["sep"])) for o, f in (("day first", day), ("month first", month))
        ], texts
    if shape := _NAMED.fullmatch(first):
        plain = [
            re.sub(r"(?<=[A-Za-z])[.-]|[,-](?= |[A-Za-z])|(?<=\d)\.(?= )", " ", t) for t in texts
        ]
        plain = [" ".join(text.split()) for text in plain]
        clock = _clock(shape).replace(",", "")
        every = [form + clock for form in _NAMED_FORMATS]
        return [("", form) for form in every if _parsed(plain, form) is not None][:1], plain
    return [], texts


def _clock(shape: re.Match[str]) -> str:
    """The format of the time of day in a text."""
    if not shape["time"]:
        return ""
    hours = "%I" if shape["half"] else "%H"
    seconds = ("%S" if not shape["f"] else "%S.%f") if shape["s"] else ""
    half = "" if not shape["half"] else " %p" if shape["half"].startswith(" ") else "%p"
    return shape["gap"] + ":".join(filter(None, (hours, "%M", seconds))) + half


def _parsed(texts: list[str], form: str) -> np.ndarray | None:
    """Days since 1970-01-01, or `None` if some text has another format."""
    import pandas as pd

    found = pd.to_datetime(pd.Series(texts, dtype=object), format=form, errors="coerce", utc=True)
    return None if found.isna().any() else days_of(found)


def days_of(times: Any) -> np.ndarray:
    """Days since 1970-01-01 of a series of times; NaN where one is missing."""
    import pandas as pd

    times = times.dt.tz_convert("UTC").dt.tz_localize(None) if times.dt.tz is not None else times
    return ((times - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)).to_numpy(np.float64)


def dates_in_integers(values: np.ndarray) -> np.ndarray | None:
    """Days since 1970-01-01 of integers such as 20241231, if all are dates of 1800 to 2199."""
    if not len(values) or values.min() < 18000101 or values.max() > 21991231:
        return None
    different, places = np.unique(values, return_inverse=True)
    if len(different) < 3:  # one or two numbers may be dates by chance
        return None
    days = _parsed([str(value) for value in different], "%Y%m%d")
    return None if days is None else days[places]


def two_marks(texts: Sequence[str]) -> tuple[str, str] | None:
    """Numbers with a decimal point and with a decimal comma, if all texts are numbers."""
    known = [text for text in texts if not is_missing(text)]
    if not all(is_number(text) for text in known):
        return None
    point, comma = (
        next((text for text in known if marks_of([text]) == {mark}), None) for mark in ".,"
    )
    return None if point is None or comma is None else (point, comma)


def words_among_numbers(texts: Sequence[str], counts: np.ndarray) -> np.ndarray | None:
    """Which texts are words, without a digit, where nine tenths of a column are numbers.

    `None` where fewer are, or where another value has digits and is no number: "3+" and ">100" say
    something about a number, and are not missing.

    Arguments:
        texts: different values of a column.
        counts: how often each occurs.
    """
    what, _, others = almost(texts, counts)
    if what != "numbers" or not others:
        return None
    words = np.array([not (is_missing(text) or is_number(text)) for text in texts])
    has_digits = any(
        character.isdigit()
        for text, is_word in zip(texts, words, strict=True)
        if is_word
        for character in text
    )
    return None if has_digits else words


#: How a column of text could also be read.
Almost = Literal["numbers", "dates"]


def almost(texts: Sequence[str], counts: np.ndarray) -> tuple[Almost, str, int]:
    """What nine tenths of a column of text are, the first value that is not, and how many are not.

    If there is no such thing, the last is 0.

    Arguments:
        texts: different values of a column.
        counts: how often each occurs.
    """
    tests: dict[Almost, Any] = {
        "numbers": is_number,
        "dates": lambda text: bool(_ISO.fullmatch(text) or _YEAR_LAST.fullmatch(text)),
    }
    for what, test in tests.items():
        if not any(test(text) for text in texts[: 10 * _FIRST]):
            continue
        fits = np.array([is_missing(text) or test(text) for text in texts])
        others = int(counts[~fits].sum())
        if 0 < 10 * others <= counts.sum():
            return what, texts[int(np.argmin(fits))], others
    return "numbers", "", 0
