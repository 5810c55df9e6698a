"""When the scales and the noise of a network are known well enough, and when they are not.

What is judged are the logarithms of scales and noise after every step. They wander for as long as
a run lasts, with the particles; their average is the answer, and its Monte-Carlo error says how
well it is known. Scales follow the weights: where weights stay where they are, so do scales, and
seem to be known. So it is also judged whether particles are as different from each other as each is
from itself at other times.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PyTree

from pipla.diagnostics import (
    Finding,
    chance_of_differences,
    monte_carlo_error,
    rhat,
    still_moving,
)
from pipla.engine.hooks import Every, View

#: The Monte-Carlo error of each logarithm at which a run is long enough: twice that of $\alpha$ is
#: 10 % of the scale $e^{2\alpha}$.
TOLERANCE = 0.025
#: How far the logarithm of a scale may be from one half of the settled steps to the other: as it
#: wanders, and if it moves steadily (the correlation with time).
WANDERS, DRIFTS, STEADY = 0.1, 0.02, 0.95
#: The length of a series below which `still_moving` does not judge it.
SHORT = 24
#: A parameter of the network is on its way where it went this share of the longest way that Adam
#: can go, and so many times what it would go by chance (the root of the number of steps).
ON_ITS_WAY, BEYOND_CHANCE = 0.3, 5.0
#: The most that R-hat of the size of the weights may be, and the probability below which a larger
#: one is no chance.
APART, BY_CHANCE = 1.5, 1e-4
#: The share of a run whose length is left to it that averages leave out.
LEFT_OUT = 0.25


def traces_of(theta_trace: PyTree) -> dict[str, np.ndarray]:
    """The traces of scales and noise, by what they are called in sentences."""
    named = {f"the scale of {name!r}": one for name, one in theta_trace["scales"].items()}
    if "noise" in theta_trace:
        named["the noise"] = theta_trace["noise"]
    return {name: np.asarray(trace, np.float64) for name, trace in named.items()}


def burn_in(step: int) -> int:
    """The steps that averages leave out, in a run whose length is left to it."""
    return int(LEFT_OUT * step)


def unsettled(trace: np.ndarray) -> bool:
    """Whether a series moves, by more than matters.

    The scales of two layers may wander together for long without any effect on predictions, which
    the Monte-Carlo error says; what moves steadily is on its way. Of a series too short for chance
    to be judged, the ends are compared.
    """
    if len(trace) < SHORT:
        return bool(abs(trace[-1] - trace[0]) > WANDERS)
    if not still_moving(trace, ignore=DRIFTS):
        return False
    middle = len(trace) // 2
    steady = abs(np.corrcoef(np.arange(len(trace)), trace)[0, 1]) > STEADY
    return bool(steady or abs(trace[middle:].mean() - trace[:middle].mean()) > WANDERS)


class Settled(Every):
    """Stop once every scale, and the noise, is known well enough, and the weights of particles mix.

    Arguments:
        least: the number of steps before the first look; there is one after each eighth as many.

    Afterwards `reason` says why it stopped the run; `None` if it did not.
    """

    def __init__(self, least: int) -> None:
        super().__init__(max(1, least // 8))
        self.least = least
        self.reason: str | None = None
        self.sizes: list[tuple[int, dict[str, np.ndarray]]] = []

    def __call__(self, view: View) -> str | None:
        if not self.is_due(view):
            return None
        scales = view.theta["scales"]
        sizes = {name: log_sizes(z) + 2 * scales[name] for name, z in view.particles.items()}
        self.sizes.append((view.step, sizes))
        if view.step < self.least:
            return None
        first = burn_in(view.step)
        settled = [trace[first:] for trace in traces_of(view.theta_trace).values()]
        error = max(float(monte_carlo_error(trace)) for trace in settled)
        if not error <= TOLERANCE or any(map(unsettled, settled)):
            return None
        seen = [each for step, each in self.sizes if step > first]
        if any(map(are_stuck, (np.stack([each[name] for each in seen]) for name in sizes))):
            return None
        self.reason = f"scales and noise are known to a Monte-Carlo error of {error:.2g}"
        return self.reason


def findings_of(theta_trace: PyTree, first: int) -> tuple[Finding, ...]:
    """Scales and noise that have not settled, or have run away, after the first steps."""
    found = []
    for name, values in traces_of(theta_trace).items():
        settled = values[min(first, len(values) - 1) :]
        if unsettled(settled):
            sentence = (
                f"{name} was still moving when its average was taken (its logarithm from "
                f"{settled[0]:.3g} to {settled[-1]:.3g})"
            )
            found.append(Finding(name, sentence, "train with more steps"))
    return tuple(found)


def uncertain(theta_trace: PyTree, first: int) -> tuple[Finding, ...]:
    """Scales and noise that wander too much to be known by the end of the longest run."""
    errors = {
        name: float(monte_carlo_error(values[first:]))
        for name, values in traces_of(theta_trace).items()
        if not unsettled(values[first:])
    }
    return tuple(
        Finding(
            name,
            f"{name} has a Monte-Carlo error of {error:.2g} in its logarithm, above {TOLERANCE:g}",
            "train with more steps (num_steps) or particles",
        )
        for name, error in errors.items()
        if not error <= TOLERANCE
    )


def travelling(
    trace: PyTree, first: int, last: int, rate: float, standardised: bool
) -> tuple[Finding, ...]:
    """Parameters of the network that Adam moved steadily when its steps began to fall.

    Arguments:
        trace: the network after every step; `None` where it is too large to be kept.
        first, last: the steps between which they are looked at.
        rate: the most that one step moves a parameter.
        standardised: whether features and labels are of order 1, so that this is no advice.
    """
    steps = last - first
    far = rate * max(ON_ITS_WAY * steps, BEYOND_CHANCE * steps**0.5)
    found = [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, leaf in jax.tree_util.tree_leaves_with_path(trace)
        if len(leaf) > last and np.max(np.abs(leaf[last] - leaf[first]), initial=0) > far
    ]
    if not found:
        return ()
    advice = "" if standardised else "standardise features and labels, "
    names = ", ".join(found)
    return (
        Finding(
            names,
            f"{names} of the network, which is not latent, was still on its way when it was fixed",
            f"{advice}start it nearer, or train with more steps (num_steps)",
        ),
    )


def stuck(particles: PyTree, num_particles: int) -> tuple[Finding, ...]:
    """Layers whose weights moved less than particles differ.

    Arguments:
        particles: draws of the weights by layer, all particles of a time after one another.
        num_particles: how many they are.
    """
    found = {
        name: log_sizes(weights).reshape(-1, num_particles) for name, weights in particles.items()
    }
    return tuple(
        Finding(
            name,
            f"the weights of {name!r} have hardly moved since averages began (R-hat of their size "
            f"{rhat(sizes, 'split'):.1f}), and its scale depends on where they are",
            "train with more steps",
        )
        for name, sizes in found.items()
        if are_stuck(sizes)
    )


def log_sizes(weights: np.ndarray) -> np.ndarray:
    r"""$\log \operatorname{mean} |w|$ of each row of weights."""
    sizes = np.mean(np.abs(weights.reshape(len(weights), -1)), axis=1, dtype=np.float64)
    return np.log(np.maximum(sizes, np.finfo(np.float64).tiny))


def are_stuck(sizes: np.ndarray) -> bool:
    """Whether particles (columns) differ by more than they change in time (rows)."""
    if len(sizes) > 1 and not np.any(np.ptp(sizes, axis=0)):
        return True
    return bool(rhat(sizes, "split") > APART) and chance_of_differences(sizes) < BY_CHANCE
