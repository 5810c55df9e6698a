"""What every way to train a classifier returns, and the paper's algorithms in centred form."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla.algorithms import IPLA, MYIPLA, MYPGD, PGD, PIPGLA, SOUL
from pipla.algorithms.base import Algorithm
from pipla.diagnostics import ConvergenceWarning
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.models.model import Model
from pipla.prox.base import Term
from pipla_lab.data.classification import Classification
from pipla_lab.experiments.networks import two_layers
from pipla_lab.experiments.networks.rows import NetworkPreset
from pipla_lab.experiments.published import CodeScale, DividedGradient

#: The most points of a trace that a figure shows.
TRACE_POINTS = 200


class Trained(NamedTuple):
    """What a method says; empty where it says nothing.

    Attributes:
        probabilities: the predictive probabilities of the classes, as a function of features.
        seconds, compile_seconds: wall time of the steps, and of compiling.
        weights: of all particles, by layer, from the first to the last (JAX sorts dicts by name);
            the leading axis counts the particles.
        theta, theta_error: the learned scales by name, and their Monte-Carlo errors.
        trace: one scale after every step (thinned), for a figure.
        finite: whether the run stayed finite.
        num_steps, num_particles: the size of the run.
        says: the status of the run and its warnings.
    """

    probabilities: Callable[[np.ndarray], np.ndarray]
    seconds: float
    weights: Mapping[str, np.ndarray] = {}
    theta: Mapping[str, float] = {}
    theta_error: Mapping[str, float | None] = {}
    trace: np.ndarray | None = None
    finite: bool = True
    compile_seconds: float = 0.0
    num_steps: int | None = None
    num_particles: int | None = None
    says: str = ""


#: From images, a preset and a seed.
Method = Callable[[Classification, NetworkPreset, int], Trained]


class Numbers(NamedTuple):
    """The numbers of one published row: those of the code, where it differs from the paper (E10).

    Attributes:
        step_size, smoothing: gamma and lambda; `None` for algorithms without a proximal step.
        start: where alpha and beta start.
    """

    step_size: float
    smoothing: float | None
    start: float


PUBLISHED = {
    "PGD": Numbers(0.1, None, 0.1),
    "SOUL": Numbers(0.1, None, 0.1),
    "IPLA": Numbers(0.1, None, 0.1),
    "MYPGD": Numbers(0.05, 0.35, 1.0),
    "MYIPLA": Numbers(0.05, 0.5, 1.0),
    "PIPGLA": Numbers(0.05, 0.05, 1.0),
}
#: What the paper says. PIPGLA takes its smoothing from the step (E13).
PAPER_STEP, PAPER_SMOOTHING, PAPER_START = 0.05, 0.5, 0.0


def published(kind: str, theta: float | None = None, *, normal: bool = False) -> Method:
    """One of the paper's algorithms as its authors' code has it (E1, E10, E13).

    Arguments:
        kind: the paper's name.
        theta: where alpha and beta start, in place of the code's number.
        normal: Normal priors, as in Kuntz et al. (2023), in place of Laplace.
    """
    numbers = PUBLISHED[kind]

    def method(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
        shape = _shape(images, preset)
        sizes = two_layers.sizes(*shape)
        term: Term | None = None if normal else two_layers.laplace_terms()
        if numbers.smoothing is not None and not normal:
            # The code of PIPGLA divides by the size of w in both layers.
            second = "alpha" if kind == "PIPGLA" else "beta"
            term = CodeScale(1 / sizes["alpha"]).on(theta="alpha", x="w") + CodeScale(
                1 / sizes[second]
            ).on(theta="beta", x="v")
        model: Model = two_layers.model(images.train, term)
        if numbers.smoothing is None or normal:
            model = DividedGradient(model, {name: float(size) for name, size in sizes.items()})
        algorithm = _algorithm(kind, numbers.step_size, numbers.smoothing, preset.num_particles, {})
        at = numbers.start if theta is None else theta
        point = two_layers.start("code", at, _chains(kind, preset), shape, seed)
        steps = preset.published_steps
        return trained_run(model, algorithm, *point, steps, preset.num_particles, seed)

    return method


def corrected(kind: str) -> Method:
    """One of the paper's algorithms in centred form, with its numbers and the right mathematics.

    Exact joint proxes, the block of theta scaled whole by the sizes of the layers, and the start
    that the paper describes.
    """

    def method(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
        shape = _shape(images, preset)
        scale = {name: 1 / size for name, size in two_layers.sizes(*shape).items()}
        smoothing = PAPER_SMOOTHING if kind in ("MYPGD", "MYIPLA") else None
        algorithm = _algorithm(
            kind, PAPER_STEP, smoothing, preset.num_particles, {"theta_scale": scale}
        )
        model = two_layers.model(images.train, two_layers.laplace_terms())
        point = two_layers.start("paper", PAPER_START, _chains(kind, preset), shape, seed)
        steps = preset.paper_steps
        return trained_run(model, algorithm, *point, steps, preset.num_particles, seed)

    return method


def _algorithm(
    kind: str, step: float, smoothing: float | None, num_moves: int, options: Mapping[str, Any]
) -> Algorithm:
    if kind in ("MYPGD", "MYIPLA"):
        preset = MYPGD if kind == "MYPGD" else MYIPLA
        return preset(step, smoothing, **options)
    if kind == "PIPGLA":
        return PIPGLA(step, smoothing, **options)
    if kind == "SOUL":
        return SOUL(step, num_moves=num_moves, **options)
    return (PGD if kind == "PGD" else IPLA)(step, **options)


def _chains(kind: str, preset: NetworkPreset) -> int:
    """SOUL has one chain, which makes as many moves as others have particles."""
    return 1 if kind == "SOUL" else preset.num_particles


def _shape(images: Classification, preset: NetworkPreset) -> tuple[int, int, int]:
    return images.train.features.shape[1], preset.num_units, len(images.classes)


def trained_run(
    model: Model,
    algorithm: Algorithm,
    theta: PyTree,
    particles: PyTree,
    num_steps: int,
    num_states: int,
    seed: int,
    *,
    activation: two_layers.Activation = jnp.tanh,
) -> Trained:
    """Run a centred model of two layers; theta and particles are those of the last step.

    Where there are fewer particles than `num_states`, the last positions are taken together.
    """
    chains = len(particles["w"])
    wanted = min(num_states, num_steps)
    every = 1 if chains < num_states else None
    result = quiet_run(
        model,
        algorithm,
        theta=theta,
        particles=particles,
        num_steps=num_steps,
        key=jax.random.key(seed),
        save=Save(moments_every=None, particles_every=every),
    )
    weights = {name: np.asarray(result.particles[name]) for name in two_layers.SCALES}
    if every is not None and result.saved_particles is not None:
        kept = {name: np.asarray(result.saved_particles[name]) for name in weights}
        weights = {name: leaf[-wanted:].reshape(-1, *leaf.shape[2:]) for name, leaf in kept.items()}
    return Trained(
        lambda features: two_layers.probabilities(weights, features, activation),
        result.seconds,
        weights=weights,
        theta={name: float(value) for name, value in result.theta_last.items()},
        trace=thinned(np.asarray(result.theta_trace["alpha"])),
        finite=result.status is not Status.NONFINITE,
        compile_seconds=result.compile_seconds,
        num_steps=result.num_steps,
        num_particles=chains,
        says=said(result),
    )


def thinned(trace: np.ndarray) -> np.ndarray:
    """Steps and values of a trace, for a figure."""
    at = np.unique(np.linspace(0, len(trace) - 1, TRACE_POINTS).astype(int))
    return np.stack([at + 1, trace[at]])


def said(result: Any) -> str:
    """The status of a `Result` or of a `TrainedNetwork`, and its warnings."""
    return "; ".join([result.status.name.lower().replace("_", " "), *map(str, result.findings)])


def quiet_run(model: Model, algorithm: Algorithm, **options: Any) -> Result:
    """`run` without warnings: what becomes of a published run is what its row is there to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = run(model, algorithm, check=False, **options)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return result
