"""What an experiment is: rows, presets, how a row is run, and how the results are shown.

The runner and the page use the abstract class `Experiment` alone. `pipla_lab.experiments.theta` and
`pipla_lab.experiments.images` hold the two kinds there are.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pipla.report import Cell, Figure, Section, Table, Text
from pipla_lab.experiments.results import Results, Row, RowT

Prox = Literal["approximate", "iterative", "exact", "none"]
#: A peer is a method from elsewhere. An oracle sees the ground truth.
Variant = Literal["published", "corrected", "recommended", "peer", "oracle"]


@dataclasses.dataclass(frozen=True)
class Entry(abc.ABC):
    """One row of a table, before it is run.

    Attributes:
        algorithm: the paper's name.
        prox: which proximal map is used; `"none"` for algorithms without a proximal step.
        variant: as published, corrected, or chosen by the library.
        detail: what sets the row apart from others of the same algorithm: `"N = 10"`.
        note: a sentence for the reader.
    """

    algorithm: str
    prox: Prox
    variant: Variant
    _: dataclasses.KW_ONLY
    detail: str = ""
    note: str = ""

    @property
    def id(self) -> str:
        """A name for files and commands: letters, digits and dashes."""
        words = (self.algorithm, self.prox, self.variant, self.detail)
        kept = "".join(c if c.isalnum() or c == "." else "-" for c in "-".join(words).lower())
        return "-".join(part for part in kept.split("-") if part)

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """A name for figures."""

    def names(self) -> dict[str, Any]:
        """Those of its fields that its row has, too."""
        fields = ("algorithm", "prox", "variant", "id", "label", "detail", "note")
        return {name: getattr(self, name) for name in fields}


@dataclasses.dataclass(frozen=True)
class Preset:
    """How much is run.

    Attributes:
        replicates: independent runs of each row.
    """

    replicates: int


class Outcome(NamedTuple, Generic[RowT]):
    """A row for `results.json`, and its arrays for the figures."""

    row: RowT
    series: dict[str, np.ndarray]


EntryT = TypeVar("EntryT", bound=Entry)
PresetT = TypeVar("PresetT", bound=Preset)
#: What all rows of one run share: the problem, the preset and the seed.
JobT = TypeVar("JobT")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(abc.ABC, Generic[EntryT, PresetT, JobT, RowT]):
    """A table or figure of the paper.

    Attributes:
        name, title, about: the name on the command line, the title of the page, and its first
            paragraph.
        entries: the rows.
        presets: by name, at least `"quick"` and `"paper"`.
        figures: draws the figures from the results, by file name.
        findings: sentences computed from the results.
        errata: the numbers of the errata that explain differences.
    """

    #: The class of the rows.
    row_type: ClassVar[type[Row]]
    #: Fewer replicates than this are refused.
    least_replicates: ClassVar[int] = 1

    name: str
    title: str
    about: str
    entries: Sequence[EntryT]
    presets: Mapping[str, PresetT]
    figures: Callable[[Results[RowT]], Mapping[str, Figure]]
    findings: Callable[[Results[RowT]], Sequence[Text]] = lambda results: ()
    errata: Sequence[str] = ()

    # Which rows there are. #

    @abc.abstractmethod
    def available(self, preset: PresetT) -> Sequence[EntryT]:
        """The rows that can be run on this machine."""

    @abc.abstractmethod
    def expected(self, results: Results[RowT]) -> Sequence[EntryT]:
        """The rows that a complete run with these settings has."""

    @abc.abstractmethod
    def unavailable(self) -> str:
        """A sentence that says why rows are not available."""

    # Running. #

    @abc.abstractmethod
    def prepare(self, preset: PresetT, seed: int) -> tuple[JobT, dict[str, Any]]:
        """The job, and settings to record: at least `data`, `from_folder` and `float64`."""

    @abc.abstractmethod
    def estimate(self, job: JobT, entries: Sequence[EntryT], results: Results[RowT]) -> float:
        """The seconds that these rows will take, and the reference if it is missing."""

    @abc.abstractmethod
    def reference(self, job: JobT, progress: bool | None) -> dict[str, Any]:
        """What rows are compared with: `theta`, `stderr`, `method`, `seconds`."""

    @abc.abstractmethod
    def row(
        self, job: JobT, entry: EntryT, reference: dict[str, Any], progress: bool | None
    ) -> Outcome[RowT]:
        """Run a row and summarise it."""

    @abc.abstractmethod
    def compare(self, results: Results[RowT]) -> None:
        """Set the fields that depend on several rows, when all rows are done."""

    # Showing. #

    @abc.abstractmethod
    def sentence(self, row: RowT) -> str:
        """The line that is logged when a row is done."""

    @abc.abstractmethod
    def reference_sentence(self, reference: dict[str, Any]) -> str:
        """The line that is logged for the reference."""

    @abc.abstractmethod
    def setting(self, results: Results[RowT]) -> list[str]:
        """Paragraphs that say what was run."""

    @abc.abstractmethod
    def tables(self, results: Results[RowT]) -> list[Section]:
        """The tables of the page."""

    @abc.abstractmethod
    def summary(self, results: Results[RowT]) -> Table:
        """The table that is printed at the end of a run."""

    @abc.abstractmethod
    def compared(self, row: RowT) -> dict[str, Cell | None]:
        """The cells that `pipla experiment compare` shows for a row, by column."""


AnyExperiment: TypeAlias = Experiment[Any, Any, Any, Any]


def mean_sd(mean: float | None, sd: float | None, digits: int) -> Cell | None:
    """`mean ± sd` as a cell that sorts by the mean."""
    if mean is None:
        return None
    tail = "" if sd is None else f" ± {sd:.{digits}f}"
    return Cell(f"{mean:.{digits}f}{tail}", mean)


def six_digits(value: Any) -> float | None:
    """A hyperparameter for `results.json`: six digits, without the noise of float32."""
    return None if value is None else float(f"{float(value):.6g}")
