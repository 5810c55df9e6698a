"""What an experiment is made of: a problem, rows, settings, and what the paper printed."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from pipla.algorithms.base import Algorithm

if TYPE_CHECKING:
    from pipla.experiments.results import Results
    from pipla.report.page import Figure, Section, Table, Text

Prox = Literal["approximate", "iterative", "exact", "none"]
#: A peer is another method; an oracle is one that sees the truth.
Variant = Literal["published", "corrected", "recommended", "peer", "oracle"]

#: What `prox` means for a term of `pipla.prox`.
APPROXIMATION = {"approximate": "published", "iterative": "iterative", "exact": None, "none": None}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row of a table.

    Attributes:
        algorithm: the paper's name.
        prox: which proximal map; `"none"` for algorithms that know none.
        variant: as the paper has it, with its errors put right, or the library's own rule.
        make: makes the algorithm (not before the run, when the precision is known); `None` for
            `pipla.recommended`.
        paper: its published numbers: `nmse_last`, `nmse_last_sd`, `nmse_average`, `seconds`.
        detail: what sets the row apart from others of the same algorithm: `"N = 10"`.
        num_particles: where it is not the preset's.
        gradients: evaluations of the gradient of g1 that each particle makes in a step.
        gradients_alone, gradients_once: those that one particle alone makes in a step, and before
            the first one.
        average_share: the last part of the run that is averaged, where it is not the preset's.
        note: a sentence for the reader.
    """

    algorithm: str
    prox: Prox
    variant: Variant
    make: Callable[[], Algorithm] | None
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)
    detail: str = ""
    num_particles: int | None = None
    gradients: float = 1.0
    gradients_alone: float = 0.0
    gradients_once: float = 0.0
    average_share: float | None = None
    note: str = ""

    @property
    def id(self) -> str:
        """A name for files and commands: letters, digits and dashes."""
        words = (self.algorithm, self.prox, self.variant, self.detail)
        kept = "".join(c if c.isalnum() or c == "." else "-" for c in "-".join(words).lower())
        return "-".join(part for part in kept.split("-") if part)

    def particles(self, preset: Preset) -> int:
        """How many particles the row has."""
        return self.num_particles or preset.num_particles

    def steps(self, preset: Preset) -> int:
        """Its steps: the preset's, or fewer, where a step costs more, at the same evaluations."""
        if not self.gradients_alone:
            return preset.num_steps
        count = preset.num_particles
        step = self.gradients * self.particles(preset) + self.gradients_alone
        return max(int((preset.num_steps * count - self.gradients_once) / step), 1)

    def evaluations(self, preset: Preset, steps: Any) -> Any:
        """Gradients evaluated in so many steps, for each particle of the preset's cloud."""
        step = self.gradients * self.particles(preset) + self.gradients_alone
        return (steps * step + self.gradients_once) / preset.num_particles

    @property
    def label(self) -> str:
        """A name for figures."""
        if self.variant == "recommended":
            return "recommended"
        prox = "" if self.prox == "none" else f", {self.prox}"
        return f"{self.algorithm}{prox}{', ' + self.detail if self.detail else ''}"


@dataclasses.dataclass(frozen=True)
class Preset:
    """How much is run.

    Attributes:
        replicates: runs of each row, from starts of their own.
        num_steps: of a row whose steps evaluate the gradient once.
        average_last: iterates in the average.
        num_particles: N.
        reference_replicates, reference_steps: of the reference maximiser, where it is not exact.
        batch: replicates that run side by side.
    """

    replicates: int
    num_steps: int = 5000
    average_last: int = 1000
    num_particles: int = 50
    reference_replicates: int = 8
    reference_steps: int = 6000
    batch: int = 20  # more no longer fit into the caches


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        name, title, about: on the command line, above the page, and its first paragraph.
        method: how rows are measured and shown.
        problem: what the method prepares from: for `replicated`, a function to the problem, from
            the authors' data (`True`) or generated (`False`).
        data_file: the authors' data in `$PIPLA_DATA`; `None` when they are generated anyway.
        entries: the rows.
        presets: by name; `"quick"` and `"paper"` at least.
        starts: theta of so many replicates at the start.
        figures: from results and series, by file name.
        findings: sentences that the results support, computed from them.
        errata: numbers of the errata that explain differences.
        reference_start: where the reference maximiser starts.
        positive: theta and -theta are the same model in non-centred form; rows in that form start
            at |theta|, and 1/2 where that is 0.
    """

    name: str
    title: str
    about: str
    method: Method
    problem: Callable[..., Any]
    data_file: str | None
    entries: Sequence[Entry]
    presets: Mapping[str, Preset]
    starts: Callable[[np.random.Generator, int], np.ndarray]
    figures: Callable[[Results], Mapping[str, Figure]]
    findings: Callable[[Results], Sequence[Text]] = lambda results: ()
    errata: Sequence[str] = ()
    reference_start: float = 0.0
    positive: bool = False
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Task(NamedTuple):
    """What all rows of a run share."""

    experiment: Experiment
    preset: Any  # a `Preset`, or what the method has made of it
    problem: Any
    seed: int


class Outcome(NamedTuple):
    """A row for `results.json`, and its arrays for figures."""

    row: dict[str, Any]
    series: dict[str, np.ndarray]


class Method(abc.ABC):
    """How the rows of an experiment are measured, and how they are shown.

    The runner and the page know no more of it than this.
    """

    least_replicates: ClassVar[int] = 1

    def available(self, experiment: Experiment, preset: Any) -> Sequence[Entry]:
        """The rows that can be run here and belong to the preset; all by default."""
        return experiment.entries

    def expected(self, experiment: Experiment, results: Results) -> Sequence[Entry]:
        """The rows that a complete run such as this one has; all by default."""
        return experiment.entries

    def why_not(self, experiment: Experiment) -> str:
        """Why rows are not available."""
        return "They do not belong to this preset."

    @abc.abstractmethod
    def prepare(self, experiment: Experiment, preset: Any) -> tuple[Any, dict[str, Any]]:
        """The problem, and what to note of it among the settings: `data` and `float64` at least."""

    @abc.abstractmethod
    def estimate(self, task: Task, entries: Sequence[Entry], results: Results) -> float:
        """Seconds that these rows will take, and the reference if there is none yet."""

    @abc.abstractmethod
    def reference(self, task: Task, progress: bool | None) -> dict[str, Any]:
        """What rows are compared with: `theta`, `stderr`, `method`, `seconds`."""

    @abc.abstractmethod
    def row(
        self, task: Task, entry: Entry, reference: dict[str, Any], progress: bool | None
    ) -> Outcome:
        """Run a row and summarise it."""

    @abc.abstractmethod
    def compare(self, results: Results) -> None:
        """Set what depends on several rows, when all are done."""

    @abc.abstractmethod
    def sentence(self, row: dict[str, Any]) -> str:
        """What is said when a row is done."""

    def reference_sentence(self, reference: dict[str, Any]) -> str:
        """What is said of the reference."""
        return f"Reference maximiser: theta = {reference['theta']:.4f} ± {reference['stderr']:.4f}"

    @abc.abstractmethod
    def setting(self, experiment: Experiment, results: Results) -> list[str]:
        """Paragraphs about what was run."""

    @abc.abstractmethod
    def tables(self, results: Results) -> list[Section]:
        """The tables of the page."""

    @abc.abstractmethod
    def summary(self, results: Results) -> Table:
        """The table that a run ends with."""
