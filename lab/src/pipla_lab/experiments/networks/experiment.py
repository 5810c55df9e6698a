"""Experiments whose rows are ways to train a classifier."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from pipla.report import Cell, Section, Table, Text, fixed
from pipla_lab.data.classification import Classification, Images
from pipla_lab.experiments.base import Entry, Experiment, Outcome
from pipla_lab.experiments.networks import measures
from pipla_lab.experiments.networks.methods import Method, Trained
from pipla_lab.experiments.networks.rows import THRESHOLD, NetworkPreset, NetworkRow
from pipla_lab.experiments.results import Results

#: The bins of a histogram, and the share of the weights that it shows.
HISTOGRAM_BINS, SHOWN = 120, 0.998


@dataclasses.dataclass(frozen=True)
class NetworkEntry(Entry):
    """One way to train a classifier.

    Attributes:
        method: the way.
        seconds: what one split takes on two cores at the paper preset, for the estimate.
        repeats: whether the row repeats another one, and is left out where `all_rows` is false.
        paper: the paper's numbers by name: `error`, `error_sd`, `lppd`, `seconds`, `std`.
        shares: rows with the same text here share their random numbers.
    """

    method: Method
    _: dataclasses.KW_ONLY
    seconds: float = 10.0
    repeats: bool = False
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)
    shares: str = ""

    @property
    def label(self) -> str:
        detail = f", {self.detail}" if self.detail else ""
        return f"{self.algorithm} ({self.variant}{detail})"


class NetworkJob(NamedTuple):
    """What all rows of one run share."""

    preset: NetworkPreset
    seed: int


#: What else is measured of a trained classifier: lines of a table, and curves.
Extra = Callable[[Trained, Classification], tuple[list[dict[str, Any]], dict[str, np.ndarray]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkExperiment(Experiment[NetworkEntry, NetworkPreset, NetworkJob, NetworkRow]):
    """Rows are ways to train a classifier.

    Attributes:
        data: the images of a preset and a seed.
        columns: the headings of the table and the cells of a row.
        about_weights: the columns that have a table of their own on the page, which is not wide.
        caption: what the reader should know about the tables.
        further: further sections with tables.
        measured: what else is measured of the first split.
        work: seconds by preset, relative to those of the paper preset, for the estimate.
    """

    row_type: ClassVar[type[NetworkRow]] = NetworkRow

    data: Callable[[NetworkPreset, int], Classification]
    columns: Mapping[str, Callable[[NetworkRow], Any]]
    caption: str
    about_weights: Collection[str] = ()
    further: Callable[[Results[NetworkRow]], list[Section]] = lambda results: []
    measured: Extra | None = None
    work: Callable[[NetworkPreset], float] = lambda preset: 1.0

    def available(self, preset: NetworkPreset) -> Sequence[NetworkEntry]:
        return [entry for entry in self.entries if preset.all_rows or not entry.repeats]

    def expected(self, results: Results[NetworkRow]) -> Sequence[NetworkEntry]:
        every = bool(results.settings.get("all_rows", True))
        return [entry for entry in self.entries if every or not entry.repeats]

    def unavailable(self) -> str:
        return "They repeat other rows and belong to the paper preset."

    def prepare(self, preset: NetworkPreset, seed: int) -> tuple[NetworkJob, dict[str, Any]]:
        images = self.data(preset, seed)
        sizes = [len(part.labels) for part in (images.train, images.test, images.large) if part]
        return NetworkJob(preset, seed), {
            "data": f"{images.name}, {' v '.join(images.classes)}; "
            + " + ".join(map(str, sizes))
            + " images",
            "from_folder": False,
            "float64": jnp.result_type(float) == jnp.float64,
        }

    def estimate(
        self, job: NetworkJob, entries: Sequence[NetworkEntry], results: Results[NetworkRow]
    ) -> float:
        share = self.work(job.preset)
        return sum(job.preset.replicates * entry.seconds * share + 3 for entry in entries)

    def reference(self, job: NetworkJob, progress: bool | None) -> dict[str, Any]:
        return {"method": "Rows are compared on the same images.", "seconds": 0.0}

    def row(
        self,
        job: NetworkJob,
        entry: NetworkEntry,
        reference: dict[str, Any],
        progress: bool | None,
    ) -> Outcome[NetworkRow]:
        each: dict[str, list[Any]] = {}
        series: dict[str, np.ndarray] = {}
        found, lines = [], []
        for replicate in range(job.preset.replicates):
            images = self.data(job.preset, job.seed + replicate)
            own = zlib.crc32((entry.shares or entry.id).encode())
            seed = (job.seed + 1000 * replicate + own) % 2**31
            trained = entry.method(images, job.preset, seed)
            for name, value in measured(trained, images).items():
                each.setdefault(name, []).append(value)
            if self.measured is not None:
                some, curves = self.measured(trained, images)
                lines.append(some)
                series |= curves if replicate == 0 else {}
            if replicate == 0:
                series |= curves_of(trained)
            # Only the first keeps its weights, which the figures need.
            found.append(trained._replace(weights={}, probabilities=_forgotten))
        return Outcome(summarised(entry, found, each, averaged(lines)), series)

    def compare(self, results: Results[NetworkRow]) -> None:
        """Nothing to do: rows do not depend on each other."""

    def sentence(self, row: NetworkRow) -> str:
        large = "" if row.error_large is None else f", {row.error_large:.2f} % on the large set"
        scales = ", ".join(f"{name} {value:.3f}" for name, value in row.scales.items())
        return (
            f"{row.label}: error {row.error:.2f} %{large}, LPPD "
            f"{row.lppd if row.lppd_large is None else row.lppd_large:.4f}"
            f"{', ' + scales if scales else ''}, {row.seconds:.1f} s"
        )

    def reference_sentence(self, reference: dict[str, Any]) -> str:
        return str(reference["method"])

    def setting(self, results: Results[NetworkRow]) -> list[str]:
        settings = results.settings
        return [
            f"Data: {settings['data']} (training, test"
            f"{', large held-out set' if settings['data'].count('+') > 1 else ''}). Preset "
            f"{results.preset}, seed {results.seed}, "
            f"{'float64' if settings['float64'] else 'float32'}; splits: {settings['replicates']}.",
        ]

    def tables(self, results: Results[NetworkRow]) -> list[Section]:
        whole = self.summary(results)
        head, *others = self.columns
        weights = [name for name in others if name in self.about_weights]
        parts = []
        for names in ([name for name in others if name not in weights], weights):
            places = [list(self.columns).index(name) for name in (head, *names)]
            if names:
                body = [[row[place] for place in places] for row in whole.rows]
                parts.append(Table((head, *names), body))
        plain = [row.label for row in results.rows if row.says == "completed"]
        said = [Text(f"{row.label}: {row.says}.") for row in results.rows if ";" in row.says]
        if said and plain:
            said.append(Text(f"Without a warning: {', '.join(plain)}."))
        sections = [Section("Methods", [Text(self.caption), *parts]), *self.further(results)]
        return [*sections, Section("What the runs say of themselves", said)] if said else sections

    def summary(self, results: Results[NetworkRow]) -> Table:
        body = [[cell(row) for cell in self.columns.values()] for row in results.rows]
        return Table(tuple(self.columns), body)

    def compared(self, row: NetworkRow) -> dict[str, Cell | None]:
        return {
            "error": spread(row, "error", 2),
            "error, large": spread(row, "error_large", 2),
            "LPPD": spread(row, "lppd_large" if row.lppd_large is not None else "lppd", 4),
            "seconds": fixed(row.seconds, 1),
        }


def measured(trained: Trained, images: Classification) -> dict[str, float | None]:
    """Errors, densities and weights of one classifier."""
    found: dict[str, float | None] = {}
    parts: list[tuple[str, Images | None]] = [("", images.test), ("_large", images.large)]
    for suffix, part in parts:
        if part is None:
            found |= {f"error{suffix}": None, f"lppd{suffix}": None}
            continue
        probabilities = trained.probabilities(part.features)
        if not np.all(np.isfinite(probabilities)):
            found |= {f"error{suffix}": None, f"lppd{suffix}": None, "calibration": None}
            continue
        found[f"error{suffix}"] = measures.error(probabilities, part.labels)
        found[f"lppd{suffix}"] = measures.lppd(probabilities, part.labels)
        found["calibration"] = measures.calibration_error(probabilities, part.labels)
    first = next(iter(trained.weights.values()), None)
    found["std_weights"] = None if first is None else float(first.std())
    found["below"] = None if first is None else measures.share_below(first, THRESHOLD)
    found |= {f"scale {name}": value for name, value in trained.theta.items()}
    return found


def summarised(
    entry: NetworkEntry,
    found: Sequence[Trained],
    each: dict[str, list[Any]],
    pruning: list[dict[str, Any]],
) -> NetworkRow:
    """Means over splits."""
    first = found[0]
    scales = {name: _mean([done.theta.get(name) for done in found]) for name in first.theta}
    errors = {name: _mean([done.theta_error.get(name) for done in found]) for name in first.theta}
    alpha = [next(iter(done.theta.values()), None) for done in found]
    fields = ("error", "lppd", "error_large", "lppd_large", "calibration", "std_weights", "below")
    means: dict[str, Any] = {name: _mean(each[name]) for name in fields}
    return NetworkRow(
        **entry.names(),
        step_size=None,
        smoothing=None,
        num_particles=first.num_particles,
        num_steps=first.num_steps,
        replicates=len(found),
        finite=float(np.mean([done.finite for done in found])),
        theta_mean=_mean(alpha),
        theta_sd=_sd(alpha),
        bias=None,
        distance_to_reference=None,
        evaluations=None,
        seconds=float(np.mean([done.seconds for done in found])),
        compile_seconds=float(np.sum([done.compile_seconds for done in found])),
        **means,
        scales={name: value for name, value in scales.items() if value is not None},
        scale_errors=errors,
        paper=dict(entry.paper),
        pruning=pruning,
        says=first.says,
        each=each,
    )


def curves_of(trained: Trained) -> dict[str, np.ndarray]:
    """Histograms of the weights of one particle, layer by layer, and the trace of a scale."""
    series: dict[str, np.ndarray] = {}
    for name, layer in trained.weights.items():
        values = np.asarray(layer[0], np.float64).ravel()
        end = float(np.quantile(np.abs(values), SHOWN)) or 1.0
        counts, edges = np.histogram(values, HISTOGRAM_BINS, (-end, end), density=True)
        series |= {f"density {name}": counts, f"edges {name}": edges}
    if trained.trace is not None:
        series["trace"] = np.asarray(trained.trace)
    return series


def averaged(tables: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Means over splits of tables that have the same lines; numbers of each split beside them."""
    if not tables:
        return []
    lines = []
    for same in zip(*tables, strict=True):
        line: dict[str, Any] = {}
        for name, value in same[0].items():
            if isinstance(value, str) or value is None:
                line[name] = value
            else:
                line[name] = _mean([other[name] for other in same])
        line["each"] = {name: [other[name] for other in same] for name in ("error", "error_large")}
        lines.append(line)
    return lines


def spread(row: NetworkRow, name: str, digits: int) -> Cell | None:
    """`mean ± sd` over splits of one of the values of `row.each`."""
    values = row.each.get(name, [])
    mean, sd = _mean(values), _sd(values)
    if mean is None:
        return None
    tail = "" if sd is None else f" ± {sd:.{digits}f}"
    return Cell(f"{mean:.{digits}f}{tail}", mean)


def scale(row: NetworkRow, name: str) -> Cell | None:
    """A learned scale: mean ± sd over splits, with the Monte-Carlo error of a run in brackets."""
    cell, error = spread(row, f"scale {name}", 3), row.scale_errors.get(name)
    if cell is None or error is None:
        return cell
    return Cell(f"{cell.text} ({error:.3f})", cell.number)


def _forgotten(features: np.ndarray) -> np.ndarray:
    raise RuntimeError("the weights of this split were not kept.")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _sd(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None
