"""What every answer can do: a summary, a figure, a page, a table for pandas, draws for ArviZ.

An answer supplies what it has to say, as an `Overview`, as figures, as columns and as draws;
`Outputs` makes text, pages and tables of them, the same in every room.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipla import _checks, _files
from pipla._extras import extra
from pipla.diagnostics import Finding
from pipla.report.inference_data import Draws, inference_data
from pipla.report.numbers import aligned, more, paragraph
from pipla.report.page import Figure, Section, Text, sortable, write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

#: At most this many rows of a table are on a page.
MOST_ROWS = 200


class Listing(NamedTuple):
    """A table of numbers by name, the most important first.

    Attributes:
        title: its heading on a page.
        head: the names of the columns; that of the first, which holds names, may be empty.
        rows: the cells as text.
        whole: a summary shows all rows, whatever the number that is asked for.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    whole: bool = False

    def text(self, most: int) -> list[str]:
        """The first rows, for a terminal."""
        shown = self.rows if self.whole else self.rows[:most]
        return ["", *aligned(self.head, shown), *more(len(shown), len(self.rows))]

    def section(self) -> Section:
        """The first rows, for a page."""
        shown, total = self.rows[:MOST_ROWS], len(self.rows)
        caption = f"The first {len(shown)} of {total}." if len(shown) < total else ""
        return Section(self.title, [sortable(self.head, shown, caption)])


class Overview(NamedTuple):
    """What is to be said of an answer.

    Attributes:
        title: what it is, in a few words.
        lead: how it was found, in a sentence.
        findings: what speaks against it.
        listings: its numbers.
        explained: what the columns mean, one sentence or more.
    """

    title: str
    lead: str
    findings: tuple[Finding, ...]
    listings: Sequence[Listing]
    explained: str

    def text(self, most: int) -> str:
        """All of it at 80 columns, with the first `most` rows of each table."""
        lines = [self.title, *paragraph(self.lead)[1:]]
        for finding in self.findings:
            lines += paragraph(f"WARNING: {finding}.")
        for listing in self.listings:
            lines += listing.text(most)
        return "\n".join([*lines, *paragraph(self.explained)])

    def write(
        self, path: str | Path, figures: Sequence[Figure], more: Sequence[Section] = ()
    ) -> Path:
        """One self-contained HTML page; its folder is made where it is missing."""
        target = _files.checked_path("path", path)
        said = [Text(f"{finding}.") for finding in self.findings]
        sections = [
            *([Section("Warnings", said)] if said else []),
            *([Section("Figures", figures)] if figures else []),
            *(listing.section() for listing in self.listings),
            Section("How to read this", [Text(self.explained)]),
            *more,
        ]
        with _files.named_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            return write_page(target, self.title, self.lead, sections)


class Outputs(abc.ABC):
    """The outputs of an answer. Names of features are those of its data unless they are given."""

    @abc.abstractmethod
    def _overview(self, names: Sequence[str] | None, level: float) -> Overview:
        """What is to be said, with intervals of probability `level`."""

    @abc.abstractmethod
    def _figures(
        self, names: Sequence[str] | None, level: float, most: int, observed: tuple[Any, Any]
    ) -> list[Figure]:
        """Figures with captions, the most important first; `observed` may be `(None, None)`."""

    @abc.abstractmethod
    def _columns(self, names: Sequence[str] | None, level: float) -> dict[str, Any]:
        """The columns of `to_pandas`; `"name"` is the index."""

    @abc.abstractmethod
    def _draws(self, names: Sequence[str] | None) -> Mapping[str, Draws]:
        """Draws by group."""

    def summary(
        self, level: float = 0.9, *, most: int = 12, feature_names: Sequence[str] | None = None
    ) -> str:
        """What was learned, as text at 80 columns.

        Arguments:
            level: the probability of the intervals.
            most: the most rows of each table.
            feature_names: names for the features, in place of those of the data.
        """
        most = _checks.integer("most", most, least=1)
        return self._overview(feature_names, _checks.level(level)).text(most)

    def plot(
        self, most: int = 30, feature_names: Sequence[str] | None = None, *, level: float = 0.9
    ) -> MatplotlibFigure:
        """The most important figure; `.savefig("figure.png")` writes it. Arguments: `summary`."""
        most = _checks.integer("most", most, least=1)
        return self._figures(feature_names, _checks.level(level), most, (None, None))[0].figure

    def report(
        self,
        path: str | Path,
        X: Any = None,
        y: Any = None,
        *,
        feature_names: Sequence[str] | None = None,
        level: float = 0.9,
    ) -> Path:
        """Write one self-contained HTML page: warnings, figures and tables.

        Arguments:
            path: the file. Its folder is made where it is missing.
            X, y: observations; where they are given, predictions are drawn beside them.
            feature_names, level: as in `summary`.
        """
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither.")
        level = _checks.level(level)
        figures = self._figures(feature_names, level, 30, (X, y))
        return self._overview(feature_names, level).write(path, figures)

    def to_pandas(self, feature_names: Sequence[str] | None = None, *, level: float = 0.9) -> Any:
        """A `pandas.DataFrame` with a row per number and the ends of its interval."""
        with extra("pandas", "to_pandas"):
            import pandas
        columns = self._columns(feature_names, _checks.level(level))
        return pandas.DataFrame(columns).set_index("name")

    def to_arviz(self, feature_names: Sequence[str] | None = None) -> Any:
        """The draws for ArviZ: a `DataTree`, or an `InferenceData` for ArviZ before 1."""
        return inference_data(self._draws(feature_names))
