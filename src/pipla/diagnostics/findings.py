"""What was found that a user must know before believing an answer."""

from __future__ import annotations

import dataclasses
import enum
import warnings
from collections.abc import Iterable


class ConvergenceWarning(UserWarning):
    """A run has ended, or would end now, with an answer that should not be believed yet."""


class Severity(enum.Enum):
    """What a finding means for the answer."""

    NOTE = "note"
    """The answer may be right, but the user should know."""
    DOUBT = "doubt"
    """The answer should not be believed as it is."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that speaks against an answer. `str(finding)` is what a user reads.

    Attributes:
        about: what it is about: a part of theta or x, a layer, a column, the noise.
        sentence: what was found, without a full stop.
        remedy: what to do about it; empty where nothing can be done.
        severity: whether it puts the answer into doubt.
    """

    about: str
    sentence: str
    remedy: str = ""
    severity: Severity = Severity.DOUBT

    def __str__(self) -> str:
        return f"{self.sentence}: {self.remedy}" if self.remedy else self.sentence


def warn_of(
    findings: Iterable[Finding],
    category: type[Warning] = ConvergenceWarning,
    stacklevel: int = 3,
) -> None:
    """One warning per finding."""
    for finding in findings:
        warnings.warn(str(finding), category, stacklevel=stacklevel)
