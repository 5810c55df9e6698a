"""The table of algorithms: a new one adds a row and gets every contract of `pipla.testing`.

A row is a preset with its numbers, its options, and the case (model and start) it runs on. Numbers
are all that may change without compiling again; a test changes every one of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import pipla
from pipla.testing import AlgorithmCase, Start

# Each `smooth` notes when it is traced.
TRACED: list[str] = []


def _vector_smooth(theta, x, data):
    TRACED.append("vector")
    misfit = jnp.sum((x - data["y"]) ** 2) / 2
    return misfit + (theta - 1.0) ** 2 / 2 + 0.1 * theta * jnp.sum(jnp.sin(x))


def _parts_smooth(theta, x, data):
    TRACED.append("parts")
    misfit = jnp.sum((x["w"] - data) ** 2) / 2 + jnp.sum((x["v"] - 1.0) ** 2)
    bias = jnp.sum((theta["bias"] - jnp.sum(x["v"], axis=0)) ** 2) / 8
    return misfit + bias + 0.1 * theta["alpha"] * jnp.sum(jnp.cos(x["w"]))


def _image_smooth(theta, x, data):
    TRACED.append("image")
    return jnp.sum((x - data) ** 2) / 2 + theta**2 / 20


def _draw(dtype, shape, seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def vector(dtype, num_particles=4):
    """A scalar theta and a vector x: the plainest case."""
    model = pipla.Model(
        _vector_smooth, pipla.prox.LaplaceLocation(scale=2.0), {"y": _draw(dtype, (3,), 0)}
    )
    return Start(model, jnp.asarray(0.5, dtype), _draw(dtype, (num_particles, 3), 1))


def noncentred(dtype, num_particles=4):
    """The same model, non-centred."""
    start = vector(dtype, num_particles)
    return start._replace(model=pipla.noncentred(start.model).model)


def parts(dtype, num_particles=4):
    """Dicts of differently shaped leaves, and a term on each of two parts."""
    location = pipla.prox.LaplaceLocation(scale=2.0).on(theta="beta", x="v")
    term = pipla.prox.GaussianLocation().on(theta="alpha", x="w") + location
    model = pipla.Model(_parts_smooth, term, _draw(dtype, (3,), 2))
    theta = {
        "alpha": jnp.asarray(0.3, dtype),
        "beta": jnp.asarray(-0.2, dtype),
        "bias": _draw(dtype, (2,), 3),
    }
    particles = {
        "w": _draw(dtype, (num_particles, 3), 4),
        "v": _draw(dtype, (num_particles, 2, 2), 5),
    }
    return Start(model, theta, particles)


def image(dtype, num_particles=4):
    """Total variation with a learned strength: an iterative prox with a warm start."""
    term = pipla.prox.TVStrength(tolerance=1e-3, max_iterations=20)
    model = pipla.Model(_image_smooth, term, _draw(dtype, (4, 5), 6))
    return Start(model, jnp.asarray(-0.5, dtype), _draw(dtype, (num_particles, 4, 5), 7))


class _Noted(pipla.likelihoods.Gaussian):
    """A Gaussian likelihood that notes when it is traced."""

    def __call__(self, theta, x, data=None):
        TRACED.append("blurred")
        return super().__call__(theta, x, data)


def blurred(dtype, num_particles=4):
    """A blurred image with a learned noise: a likelihood whose flow is exact."""
    operator = pipla.operators.convolution(pipla.operators.blur.box(3), (4, 5))
    likelihood = _Noted(operator, np.asarray(_draw(dtype, (4, 5), 6)), None, theta="noise")
    term = pipla.prox.TVStrength(tolerance=1e-3, max_iterations=20).on(theta="strength")
    theta = {"noise": jnp.asarray(-0.5, dtype), "strength": jnp.asarray(0.2, dtype)}
    model = pipla.Model(likelihood, term)
    return Start(model, theta, _draw(dtype, (num_particles, 4, 5), 7))


class _NotedLogistic(pipla.likelihoods.Logistic):
    """A logistic likelihood that notes when it is traced."""

    def __call__(self, theta, x, data=None):
        TRACED.append("observations")
        return super().__call__(theta, x, data)


def observations(dtype, num_particles=4):
    """A likelihood whose observations can be taken apart."""
    features = np.random.default_rng(8).normal(size=(20, 3))
    likelihood = _NotedLogistic(features, features[:, 0] > 0)
    model = pipla.Model(likelihood, pipla.prox.LaplaceLocation(scale=2.0))
    return Start(model, jnp.asarray(0.5, dtype), _draw(dtype, (num_particles, 3), 1))


class _NotedFactors(pipla.likelihoods.Factors):
    """A factor likelihood that notes when it is traced."""

    def __call__(self, theta, x, data=None):
        TRACED.append("factors")
        return super().__call__(theta, x, data)


def factors(dtype, num_particles=4):
    """A matrix of low rank: a likelihood with Gibbs moves."""
    rows, columns = np.nonzero(np.arange(12).reshape(4, 3) % 5)
    likelihood = _NotedFactors(rows, columns, _draw(dtype, rows.shape, 9), (4, 3), biases=False)
    theta = {"mean": jnp.zeros((), dtype), "noise": jnp.zeros((), dtype)}
    theta["scale"] = jnp.asarray([0.1], dtype)
    particles = {
        "rows": _draw(dtype, (num_particles, 4, 1), 10),
        "columns": _draw(dtype, (num_particles, 3, 1), 11),
    }
    return Start(pipla.Model(likelihood), theta, particles)


def _scales_smooth(theta, x, data):
    TRACED.append("scales")
    misfit = jnp.sum((x["w"] - data) ** 2) / 2 + jnp.sum((x["v"] - theta["bias"][None]) ** 2)
    return misfit + jnp.sum((theta["bias"] - 1.0) ** 2) / 8


def scales(dtype, num_particles=4):
    """Priors of two leaves of x whose scales are learned, non-centred; theta has another part."""
    term = pipla.prox.LaplaceScale().on(theta=("prior", "w"), x="w")
    term = term + pipla.prox.GaussianScale().on(theta=("prior", "v"), x="v")
    model = pipla.Model(_scales_smooth, term, _draw(dtype, (3,), 2))
    own = {"w": jnp.asarray(0.2, dtype), "v": jnp.asarray(-0.1, dtype)}
    theta = {"prior": own, "bias": _draw(dtype, (2,), 3)}
    particles = {
        "w": _draw(dtype, (num_particles, 3), 4),
        "v": _draw(dtype, (num_particles, 2, 2), 5),
    }
    return Start(pipla.noncentred(model).model, theta, particles)


def row(name, preset, numbers, options=None, case=vector, optimizer=None):
    """A case of the table: a preset with its numbers, its options, and where it starts."""

    def make(factor=1.0):
        scaled = jax.tree.map(lambda number: factor * number, numbers)
        code = {} if optimizer is None else {"theta_optimizer": optimizer}
        return preset(**scaled, **(options or {}), **code)

    return AlgorithmCase(name, make, case, holds_code=optimizer is not None)


STEP = {"step_size": 0.05}
BOTH = {"step_size": 0.05, "smoothing": 0.1}
METROPOLIS = {"step_size": 0.5, "smoothing": 0.4, "decay_after": 10.0, "decay_power": 0.8}
KINETIC = {"share": 0.8, "fraction": 0.9, "longest": 0.05, "pull": 0.2}
SCALED = {"theta_scale": 0.3}
SCALES = {"theta_scale": {"alpha": 0.05, "beta": 0.2, "bias": 0.5}}


def adaptive(**numbers):
    """Steps that measure themselves, with the recommended scheme."""
    scheme = pipla.PIPGLA(1.0, theta_noise=False, antithetic=True, reflected=True)
    return pipla.algorithms.Adaptive(scheme, **numbers)


def minibatch(**numbers):
    """Steps on 6 of 20 observations, with a control variate."""
    return pipla.Minibatch(pipla.PIPGLA(**numbers), 6, control_variate=True)


def paired(**numbers):
    """The rule of `pipla.fit`: whole and half steps side by side."""
    return pipla.algorithms.Paired(pipla.IRPL(**numbers))


# An optimiser is code: made once here, so that a row compiles once.
_ADAM = optax.adam(0.05)

ROWS = [
    row("PGD", pipla.PGD, STEP | SCALED),
    row("IPLA", pipla.IPLA, STEP | SCALED),
    row("SOUL", pipla.SOUL, STEP, {"num_moves": 3}),
    row("MYPGD", pipla.MYPGD, BOTH | SCALED),
    row("MYIPLA", pipla.MYIPLA, BOTH | SCALED),
    row("PIPGLA", pipla.PIPGLA, STEP | SCALED),
    row("PIPULA", pipla.PIPULA, STEP | SCALED),
    row("PPGD", pipla.PPGD, STEP),
    row("MYULA", pipla.MYULA, BOTH),
    row("PGLA", pipla.PGLA, BOTH),
    row("MYIPLA hybrid", pipla.MYIPLA, BOTH, {"theta_update": "gradient"}),
    row("PIPGLA hybrid", pipla.PIPGLA, STEP, {"theta_update": "gradient"}),
    row("PIPGLA antithetic", pipla.PIPGLA, STEP, {"antithetic": True}),
    row("MYPGD optax", pipla.MYPGD, BOTH, optimizer=_ADAM),
    row("PPGD several moves", pipla.PPGD, STEP, {"num_moves": 2}),
    row("PIPGLA non-centred", pipla.PIPGLA, STEP | SCALED, case=noncentred),
    row("PIPGLA parts", pipla.PIPGLA, STEP | SCALES, case=parts),
    row("PIPGLA reflected", pipla.PIPGLA, STEP, {"reflected": True}, case=noncentred),
    row("Metropolis", pipla.MetropolisAdjusted, METROPOLIS | SCALED, case=noncentred),
    row("adaptive", adaptive, {"first": 1.0, "last": 0.2, "change_after": 9.0}, case=noncentred),
    row("minibatch", minibatch, STEP | SCALED, case=observations),
    row("RPL", pipla.RPL, STEP | {"first": 3.0, "change_after": 4.0}, case=blurred),
    row("IRPL", pipla.IRPL, STEP | {"first": 3.0, "change_after": 4.0}, case=parts),
    row("Paired", paired, STEP | {"first": 3.0, "change_after": 4.0}, case=parts),
    row("Kinetic", pipla.algorithms.Kinetic, KINETIC, case=noncentred, optimizer=_ADAM),
    row(
        "Kinetic scales",
        pipla.algorithms.Kinetic,
        KINETIC | {"centre": {"w": 0.5, "v": 0.4}, "width": 1.0},
        {"prior": "prior"},
        case=scales,
        optimizer=_ADAM,
    ),
    row("BlockGibbs", pipla.algorithms.BlockGibbs, {"gain": 0.5}, case=factors),
    row("SKROCK", pipla.SKROCK, BOTH | SCALED, {"num_stages": 3}, case=blurred),
    row("PIPGLA image", pipla.PIPGLA, {"step_size": 0.05, "theta_scale": 0.01}, case=image),
    row(
        "MYIPLA image, hybrid",
        pipla.MYIPLA,
        BOTH | {"theta_scale": 0.05},
        {"theta_update": "gradient"},
        case=image,
    ),
]

#: The rows that the contracts of runs are checked on: one per scheme, the wrappers, an optimiser, a
#: warm start. These contracts are about the engine, which all rows share.
RUN_ROWS = [
    case
    for case in ROWS
    if case.name
    in (
        "PGD",
        "MYIPLA",
        "PIPGLA parts",
        "PIPULA",
        "MYPGD optax",
        "Metropolis",
        "adaptive",
        "minibatch",
        "RPL",
        "IRPL",
        "Paired",
        "Kinetic scales",
        "SKROCK",
        "PIPGLA image",
    )
]
