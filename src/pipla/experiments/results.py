"""`results.json` and `series.npz`: written whole or not at all, and never over a stranger's.

Plain JSON and plain arrays; nothing is unpickled, so files from others are safe to open.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from pipla import _files

FORMAT = 1
_TOP = {
    "experiment": str,
    "preset": str,
    "settings": dict,
    "seed": int,
    "versions": dict,
    "reference": dict,
    "rows": list,
}
_TEXT = ("algorithm", "prox", "variant", "id")
_NUMBERS = (
    "theta_mean",
    "theta_sd",
    "nmse_last",
    "nmse_average",
    "distance_to_reference",
    "evaluations",
    "seconds",
)


class ResultsError(ValueError):
    """A folder that cannot be used, with the reason in one sentence."""


@dataclasses.dataclass
class Results:
    """What a run of an experiment has found so far."""

    experiment: str
    preset: str
    settings: dict[str, Any]
    seed: int
    versions: dict[str, str]
    reference: dict[str, Any] = dataclasses.field(default_factory=dict)
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    series: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def row(self, identity: str) -> dict[str, Any] | None:
        """The row of this id, if it is done."""
        return next((row for row in self.rows if row["id"] == identity), None)

    def curve(self, row: dict[str, Any], name: str) -> np.ndarray | None:
        """One array of a row's series."""
        return self.series.get(f"{row['id']}:{name}")

    def same_run(self, other: Results) -> str | None:
        """What differs between two runs, in words; `None` if one can go on with the other."""
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


def prepare(folder: Path) -> Results | None:
    """Make sure that results can be written here; return those that are here already."""
    if folder.exists():
        if not folder.is_dir():
            raise ResultsError(f"{str(folder)!r} is not a folder; choose another --out.")
        if (folder / "results.json").exists():
            found = load(folder)
            _check_writable(folder)
            return found
        if any(folder.iterdir()):
            raise ResultsError(
                f"{str(folder)!r} holds files that are not an experiment's; choose another --out."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{str(folder)!r} cannot be made: {error.strerror}.") from error
    _check_writable(folder)
    return None


def load(folder: Path) -> Results:
    """Read a folder, or say what is wrong with it."""
    path = folder / "results.json"
    if not path.is_file():
        raise ResultsError(f"{str(folder)!r} holds no results.json.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        _validate(content)
        series = _read_series(folder / "series.npz")
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ResultsError(
            f"{str(folder)!r} is damaged or not an experiment's ({error}); nothing was changed."
        ) from error
    fields = {name: content[name] for name in _TOP}
    return Results(**fields, series=series)


def save(results: Results, folder: Path) -> None:
    """Write the series, then the rows: a row in `results.json` has its series."""
    content = {"format": FORMAT, **{name: getattr(results, name) for name in _TOP}}
    text = json.dumps(_plain(content), indent=1, allow_nan=False)
    _files.write_whole(
        folder / "series.npz",
        lambda file: np.savez_compressed(file, allow_pickle=False, **results.series),
    )
    _files.write_whole(folder / "results.json", lambda file: file.write(text.encode()))


def _check_writable(folder: Path) -> None:
    try:
        _files.check_writable(folder)
    except OSError as error:
        raise ResultsError(f"{str(folder)!r} cannot be written to: {error.strerror}.") from error


def _validate(content: Any) -> None:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"no results of format {FORMAT}")
    for name, kind in _TOP.items():
        if not isinstance(content.get(name), kind):
            raise ValueError(f"{name} is missing or not a {kind.__name__}")
    reference = content["reference"]
    if reference and not all(_is_number(reference.get(name)) for name in ("theta", "stderr")):
        raise ValueError("reference lacks theta or stderr")
    for number, row in enumerate(content["rows"]):
        if not isinstance(row, dict):
            raise ValueError(f"row {number} is not an object")
        if not all(isinstance(row.get(name), str) for name in _TEXT):
            raise ValueError(f"row {number} lacks one of {', '.join(_TEXT)}")
        for name in _NUMBERS:
            if name not in row or not (row[name] is None or _is_number(row[name])):
                raise ValueError(f"row {number}: {name} is missing or not a number")
        if not isinstance(row.get("paper"), dict):
            raise ValueError(f"row {number}: paper is missing")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_series(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _plain(value: Any) -> Any:
    """Without NaN and infinities, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
