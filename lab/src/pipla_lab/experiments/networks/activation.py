"""A network with a hard tanh: what the published "prox" is, and two sound ways around its kinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla.algorithms import IPLA, PGD, PIPGLA
from pipla.algorithms.base import Algorithm
from pipla.models.model import Model
from pipla.report import Figure, Text
from pipla_lab.data.classification import Classification, Images, digits
from pipla_lab.experiments.networks import figures, mnist, two_layers
from pipla_lab.experiments.networks.experiment import NetworkEntry, NetworkExperiment
from pipla_lab.experiments.networks.methods import Method, Trained, trained_run
from pipla_lab.experiments.networks.recommended import recommended
from pipla_lab.experiments.networks.rows import NetworkPreset, NetworkRow
from pipla_lab.experiments.networks.splitting import hard_tanh, splitting
from pipla_lab.experiments.published import AddedGradient, DividedGradient, published_hard_tanh
from pipla_lab.experiments.results import Results

#: The paper's table: error and its deviation in %, LPPD, seconds.
PAPER = {
    "MYPGD": (0.75, 0.68, -0.0336, 40.0),
    "MYIPLA": (0.70, 0.50, -0.0428, 40.0),
    "PIPGLA": (0.90, 0.49, -0.0376, 68.0),
}
#: The paper's numbers of particles; rows with the last two repeat the first.
PARTICLES = (50, 5, 100)
#: The paper's step, and where its code starts alpha and beta.
STEP, START = 0.05, 0.0


def images(preset: NetworkPreset, seed: int) -> Classification:
    """1 and 7."""
    return digits((1, 7), seed=seed, size=preset.images, source=preset.source)


def published(kind: str, num_particles: int | None = None) -> Method:
    """The algorithm of the authors' code: its "prox" is a derivative (E11)."""

    def method(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
        model = two_layers.model(images.train, None, published_hard_tanh)
        if kind == "PIPGLA":
            model = _added(images.train)
        return _centred(model, kind, published_hard_tanh, num_particles, images, preset, seed)

    return method


def subgradient(num_particles: int | None = None) -> Method:
    """Langevin with a Clarke subgradient: IPLA, theta's block scaled whole."""

    def method(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
        model = two_layers.model(images.train, None, hard_tanh)
        return _centred(model, "IPLA", hard_tanh, num_particles, images, preset, seed)

    return method


def _centred(
    model: Model,
    kind: str,
    activation: two_layers.Activation,
    num_particles: int | None,
    images: Classification,
    preset: NetworkPreset,
    seed: int,
) -> Trained:
    shape = (images.train.features.shape[1], preset.num_units, len(images.classes))
    sizes = two_layers.sizes(*shape)
    count = preset.count(num_particles)
    point = two_layers.start("code", START, count, shape, seed)
    if kind == "IPLA":
        scale = {name: 1 / size for name, size in sizes.items()}
        algorithm: Algorithm = IPLA(STEP, theta_scale=scale)
    else:
        model = DividedGradient(model, {name: float(size) for name, size in sizes.items()})
        schemes = {"MYPGD": PGD(STEP), "MYIPLA": IPLA(STEP), "PIPGLA": PIPGLA(STEP)}
        algorithm = schemes[kind]
    return trained_run(
        model, algorithm, *point, preset.paper_steps, count, seed, activation=activation
    )


def _added(train: Images) -> Model:
    """Priors and v by their gradients; w by the whole gradient of the misfit, without a step."""
    features, labels = jnp.asarray(train.features), jnp.asarray(train.labels)

    def misfit(x: PyTree) -> Float[Array, ""]:
        scores = two_layers.scores(x, features.astype(x["w"].dtype), published_hard_tanh)
        return two_layers.minus_log_likelihood(scores, labels)

    def smooth(theta: PyTree, x: PyTree, data: PyTree) -> Float[Array, ""]:
        fixed = x | {"w": jax.lax.stop_gradient(x["w"])}
        return misfit(fixed) + two_layers.normal_potential(theta, x)

    return Model(smooth, AddedGradient(misfit, "w"))


def rows() -> list[NetworkEntry]:
    """Published, with a Clarke subgradient, split, and recommended; three numbers of particles."""
    names = ("error", "error_sd", "lppd", "seconds")
    found = []
    for place, count in enumerate(PARTICLES):
        detail, repeats = f"N = {count}", place > 0
        given = count if repeats else None
        for kind, numbers in PAPER.items():
            found.append(
                NetworkEntry(
                    *(kind, "none", "published", published(kind, given)),
                    detail="" if not repeats else detail,
                    note="" if repeats else NOTES[kind],
                    paper={} if repeats else dict(zip(names, numbers, strict=True)),
                    seconds=25.0 * count / 50,
                    repeats=repeats,
                )
            )
        found.append(
            NetworkEntry(
                *("IPLA by subgradients", "none", "corrected", subgradient(given)),
                detail="" if not repeats else detail,
                seconds=25.0 * count / 50,
                repeats=repeats,
            )
        )
    split = [
        NetworkEntry(
            *("PIPGLA on a splitting", "exact", "corrected", splitting(count)),
            detail="" if count is None else f"N = {count}",
            seconds=60.0 if count is None else 6.0 * count,
            repeats=count is not None,
        )
        for count in (None, 50, 100)
    ]
    learned = NetworkEntry(
        *("train", "none", "recommended", recommended("normal", activation=hard_tanh)),
        detail="Normal prior",
        note="non-centred, with a Clarke subgradient of the activation",
        seconds=60.0,
    )
    return [*found, *split, learned]


NOTES = {
    "MYPGD": "what the code calls a prox is the derivative of the activation, 0 or 1: this is PGD",
    "MYIPLA": "what the code calls a prox is the derivative of the activation: this is IPLA",
    "PIPGLA": "the gradient of the misfit is added to w whole, without a step size",
}


def findings(results: Results[NetworkRow]) -> Sequence[Text]:
    """Whether errors tell rows apart, and that a published prox is a derivative."""
    said = [
        mnist.errors_apart(results),
        "The published prox is the derivative of the hard tanh, except in strips of width .001 "
        "beside its kinks: MYIPLA and MYPGD are IPLA and PGD here.",
    ]
    return [Text(sentence) for sentence in said if sentence]


def drawn(results: Results[NetworkRow]) -> Mapping[str, Figure]:
    """Weights, and where alpha went."""
    variants = ("published", "corrected", "recommended")
    return figures.collected(
        weights=figures.histograms(results), alpha=figures.traces(results, variants)
    )


ACTIVATION = NetworkExperiment(
    name="bnn-activation",
    title="A network with kinks: hard tanh, handwritten 1 and 7",
    about="The network of bnn-mnist with h(x) = max(-1, min(1, x)) for tanh, Normal priors of "
    "learned standard deviations exp(alpha) and exp(beta), and 800 images of 1 and 7. The density "
    "has kinks where a pre-activation is 1 or -1. Published rows do what the authors' code does; "
    "split rows have the pre-activations as variables, with a one-dimensional prox each.",
    data=images,
    columns=mnist.COLUMNS,
    caption=mnist.CAPTION,
    about_weights=mnist.ABOUT_WEIGHTS,
    work=mnist.work,
    entries=rows(),
    presets=mnist.PRESETS,
    figures=drawn,
    findings=findings,
    errata=("E11", "E13"),
)
