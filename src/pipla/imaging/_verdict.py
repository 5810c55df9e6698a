"""Whether a restored image should be believed: what its run, its draws and its residuals say."""

from __future__ import annotations

import dataclasses

import numpy as np

from pipla.diagnostics import Finding, rhat, still_moving, warn_of
from pipla.engine.doubts import LARGEST_GAP, NEGLIGIBLE, rounded
from pipla.engine.hooks import Every, View
from pipla.engine.result import Result, Status
from pipla.fitting.observer import MOST_WATCHED
from pipla.imaging._residuals import MisfitWarning, Residuals
from pipla.models.model import Model

#: Steps between two looks at the particles, and the fewest looks by which mixing is judged.
LOOK_EVERY, FEWEST_LOOKS = 5, 8
#: The largest split R-hat that nine of ten pixels stay below. The limits of `fit` are for long
#: runs of independent particles; here are 200 steps of an antithetic pair. Against runs of 1500 to
#: 3000 steps, thirteen runs with up to 1.68 had mean posterior sds within 6 %, and the only one
#: above, with 1.86, had sds 13 % too small. No benchmark in the repository repeats this yet.
LARGEST_RHAT = 1.8


class Looks(Every):
    """Keeps some pixels of the particles after the burn-in."""

    def __init__(self, size: int) -> None:
        super().__init__(LOOK_EVERY)
        self._watched = np.arange(size)
        if size > MOST_WATCHED:
            rng = np.random.default_rng(0)
            self._watched = np.sort(rng.choice(size, MOST_WATCHED, replace=False))
        self._rows: list[np.ndarray] = []

    def __call__(self, view: View) -> None:
        if self.is_due(view) and view.step > view.burn_in:
            self._rows.append(view.particles.reshape(len(view.particles), -1)[:, self._watched])

    def rhat(self) -> float:
        """The split R-hat that nine of ten pixels stay below; NaN after few steps."""
        if len(self._rows) < FEWEST_LOOKS:
            return float("nan")
        return float(np.quantile(rhat(np.stack(self._rows), "split"), 0.9))


def judged(model: Model, result: Result, looks: Looks, residuals: Residuals) -> Result:
    """The result with what speaks against it, in words for images; each is a warning, too."""
    size = int(np.prod(result.particles.shape[1:]))
    found: list[Finding] = []
    for name, trace in result.theta_trace.items():
        if still_moving(trace[result.burn_in :], NEGLIGIBLE * np.abs(trace[-1] - trace[0])):
            sentence = (
                f"the {name} was still moving after the burn-in, so that it may be off, and the "
                "image with it"
            )
            found.append(Finding(f"the {name}", sentence, "take more steps"))
    if looks.rhat() > LARGEST_RHAT:
        sentence = (
            f"the sampler has not mixed (R-hat of a tenth of the pixels is above {looks.rhat():.1f}"
            f", good is below {LARGEST_RHAT}), so that the uncertainty may be too small"
        )
        found.append(Finding("the uncertainty", sentence, "take more steps"))
    if result.prox_gap > LARGEST_GAP * size:
        sentence = (
            "the proximal map of total variation was inexact: the strength has run away, as it "
            "does where the stated noise is far from the true one"
        )
        found.append(Finding("the strength", sentence))
    coarse = rounded(model, result.particles, result.x_variance)
    found += [coarse] if coarse else []
    misfit = [residuals.finding] if residuals.finding else []
    warn_of(found, stacklevel=5)
    warn_of(misfit, MisfitWarning, stacklevel=5)
    found += misfit
    message = result.message.removesuffix("; ".join(["", *map(str, result.findings)]))
    completed = result.status in (Status.COMPLETED, Status.UNRELIABLE)
    return dataclasses.replace(
        result,
        findings=tuple(found),
        message="; ".join([message, *map(str, found)]),
        status=(Status.UNRELIABLE if found else Status.COMPLETED) if completed else result.status,
    )
