"""Results of an experiment: `results.json` and `series.npz`, written atomically.

The files hold plain JSON and plain arrays. Nothing is unpickled, so files from others are safe to
open. A folder that holds anything else is never written to.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from pipla.engine import archive
from pipla_lab import files

FORMAT = 2
#: The most bytes that compressed series may have when they are unpacked.
LARGEST_SERIES = 2**29
_TOP = {
    "experiment": str,
    "preset": str,
    "settings": dict,
    "seed": int,
    "versions": dict,
    "reference": dict,
    "rows": list,
}


class ResultsError(ValueError):
    """A folder that cannot be used; the message gives the reason in one sentence."""


@dataclasses.dataclass(kw_only=True)
class Row:
    """The fields that every row of `results.json` has; each kind of experiment adds its own.

    Attributes:
        algorithm, prox, variant, detail: which row this is.
        id, label: its name in files and commands, and in figures.
        note: a sentence for the reader.
        step_size, smoothing: the numbers of the algorithm, where it has them.
        num_particles, num_steps: the size of the run; `None` for methods without particles.
        replicates, finite: the number of runs, and the share of them that stayed finite.
        theta_mean, theta_sd: mean and standard deviation over replicates of the estimate of theta.
        bias, distance_to_reference: mean and root mean square over replicates of the estimate's
            distance to the reference.
        evaluations: gradient evaluations of one run.
        seconds, compile_seconds: wall time of the steps, and of compiling.
    """

    algorithm: str
    prox: str
    variant: str
    id: str
    label: str
    detail: str
    note: str
    step_size: float | None
    smoothing: float | None
    num_particles: int | None
    num_steps: int | None
    replicates: int
    finite: float
    theta_mean: float | None
    theta_sd: float | None
    bias: float | None
    distance_to_reference: float | None
    evaluations: float | None
    seconds: float
    compile_seconds: float


RowT = TypeVar("RowT", bound=Row)
#: The class of the rows of an experiment, by the experiment's name.
RowType = Callable[[str], type[Any]]


@dataclasses.dataclass
class Results(Generic[RowT]):
    """The results of an experiment so far."""

    experiment: str
    preset: str
    settings: dict[str, Any]
    seed: int
    versions: dict[str, str]
    reference: dict[str, Any] = dataclasses.field(default_factory=dict)
    rows: list[RowT] = dataclasses.field(default_factory=list)
    series: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def row(self, identity: str) -> RowT | None:
        """The row with this id, or `None` if it has not been run."""
        return next((row for row in self.rows if row.id == identity), None)

    def curve(self, row: RowT, name: str) -> np.ndarray | None:
        """One array of a row's series."""
        return self.series.get(f"{row.id}:{name}")

    def difference(self, other: Results[Any]) -> str | None:
        """The first setting in which two runs differ; `None` if one can resume the other."""
        for name in ("experiment", "preset", "seed"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine!r}, not {theirs!r}"
        for part in ("settings", "versions"):
            mine, theirs = getattr(self, part), getattr(other, part)
            for key in sorted({*mine, *theirs}):
                if mine.get(key) != theirs.get(key):
                    return f"{key} {mine.get(key)!r}, not {theirs.get(key)!r}"
        return None


def prepare(folder: Path, row_type: RowType) -> Results[Any] | None:
    """Make sure that results can be written to a folder; return those that it already holds."""
    if folder.exists():
        if not folder.is_dir():
            raise ResultsError(f"{str(folder)!r} is not a folder; choose another --out.")
        if (folder / "results.json").exists():
            found = read(folder, row_type)
            _check_writable(folder)
            return found
        names = ("series.npz", "results.json")  # of which a killed run leaves temporary files
        if not all(
            any(files.is_temporary(file.name, name) for name in names) for file in folder.iterdir()
        ):
            raise ResultsError(
                f"{str(folder)!r} holds files that are not an experiment's; choose another --out."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{str(folder)!r} cannot be made: {error.strerror}.") from error
    _check_writable(folder)
    return None


def read(folder: Path, row_type: RowType) -> Results[Any]:
    """Read a folder. Damaged or foreign files raise `ResultsError`."""
    path = folder / "results.json"
    if not path.is_file():
        raise ResultsError(f"{str(folder)!r} holds no results.json.")
    try:
        with files.open_regular(path) as file:
            content = archive.read_json(file)
        _validate(content)
        kind = row_type(content["experiment"])
        rows = [_read_row(kind, number, row) for number, row in enumerate(content["rows"])]
        series = _read_series(folder / "series.npz")
    except Exception as error:  # damage shows as any error of json, zipfile or NumPy
        raise ResultsError(
            f"{str(folder)!r} is damaged or not an experiment's ({error}); nothing was changed."
        ) from error
    fields = {name: content[name] for name in _TOP} | {"rows": rows}
    return Results(**fields, series=series)


def save(results: Results[Any], folder: Path) -> None:
    """Write the series first, then the rows, so that every row in `results.json` has its series."""
    content = {"format": FORMAT, **{name: getattr(results, name) for name in _TOP}}
    text = json.dumps(_plain(content), indent=1, allow_nan=False)
    small = sum(array.nbytes for array in results.series.values()) < LARGEST_SERIES // 2
    write = np.savez_compressed if small else np.savez  # what is too large would not be read
    files.write_whole(
        folder / "series.npz", lambda file: write(file, allow_pickle=False, **results.series)
    )
    files.write_whole(folder / "results.json", lambda file: file.write(text.encode()))


def _check_writable(folder: Path) -> None:
    try:
        files.check_writable(folder)
    except OSError as error:
        raise ResultsError(f"{str(folder)!r} cannot be written to: {error.strerror}.") from error


def _validate(content: Any) -> None:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"no results of format {FORMAT}")
    for name, kind in _TOP.items():
        if not isinstance(content.get(name), kind):
            raise ValueError(f"{name} is missing or not a {kind.__name__}")
    reference = content["reference"]
    named = {"theta", "stderr"} & set(reference)  # some experiments have no theta to compare with
    if named and not all(_fits(reference.get(name), float) for name in ("theta", "stderr")):
        raise ValueError("reference lacks theta or stderr")


def _read_row(kind: type[RowT], number: int, content: Any) -> RowT:
    if not isinstance(content, dict):
        raise ValueError(f"row {number} is not an object")
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    if set(content) != set(names):
        odd = sorted(set(content) ^ set(names))
        raise ValueError(f"row {number}: {', '.join(odd)} missing or unknown")
    values = {}
    for name in names:
        value = content[name]
        if value is None and hints[name] is float:
            value = math.nan  # JSON has no NaN: `_plain` wrote null
        if not _fits(value, hints[name]):
            raise ValueError(f"row {number}: {name} has the wrong type")
        values[name] = value
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value read from JSON has the type of a dataclass field."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _read_series(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    with files.open_regular(path) as file:
        return archive.read_npz(file, LARGEST_SERIES)


def _plain(value: Any) -> Any:
    """Dataclasses as dicts; NaN and infinities, which JSON does not have, as `None`."""
    if isinstance(value, Row):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
