"""What others would do with the same images: logistic regression, Adam, a Laplace approximation."""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from pipla_lab.data.classification import Classification, Images
from pipla_lab.experiments.networks import two_layers
from pipla_lab.experiments.networks.methods import Method, Trained
from pipla_lab.experiments.networks.rows import NetworkPreset

#: Adam: its step, its steps per round, and the most rounds; a look at held-out images after each.
STEP, ROUND, ROUNDS = 1e-3, 20, 100
#: Rounds without progress after which training stops; the share of images it is judged by.
PATIENCE, HELD_OUT = 10, 0.15
#: The Laplace approximation: Adam's step, turns of training and of updates of the precisions, and
#: rounds and updates per turn.
LAPLACE_STEP, TURNS, ROUNDS_PER_TURN, UPDATES = 1e-2, 8, 10, 5
#: Precisions beyond this switch a layer off.
LARGEST_PRECISION = 1e8


def logistic(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
    """Logistic regression, an l2 penalty chosen by five-fold cross-validation of the LPPD."""
    from sklearn.linear_model import LogisticRegressionCV

    began = time.perf_counter()
    train = images.train
    regression = LogisticRegressionCV(
        Cs=np.logspace(-6, 0, 13),
        cv=5,
        scoring="neg_log_loss",
        max_iter=500,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
        random_state=seed % 2**32,
    ).fit(train.features.astype(np.float64), train.labels)
    return Trained(
        lambda features: np.asarray(regression.predict_proba(features.astype(np.float64))),
        time.perf_counter() - began,
        weights={"w": np.asarray(regression.coef_).T[None]},
    )


def adam(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
    """One network trained by Adam, stopped early on a share of the training images."""
    began = time.perf_counter()
    train = images.train
    order = np.random.default_rng(seed).permutation(len(train.labels))
    held = max(1, round(HELD_OUT * len(order)))
    x = _initial(images, preset, seed)
    state = _Adam(x, optax.adam(STEP).init(x))
    best, best_x, waited, steps = -np.inf, x, 0, 0
    dtype = jnp.result_type(float)
    learn, watch = train.some(order[held:], dtype), train.some(order[:held], dtype)
    for _ in range(ROUNDS):
        state = _descend(state, learn, _ZERO)
        steps += ROUND
        density = -float(_misfit(state.x, watch))
        best, best_x, waited = (
            (density, state.x, 0) if density > best else (best, best_x, waited + 1)
        )
        if waited >= PATIENCE:
            break
    weights = {name: np.asarray(best_x[name])[None] for name in two_layers.SCALES}
    return Trained(
        lambda features: two_layers.probabilities(weights, features),
        time.perf_counter() - began,
        weights=weights,
        num_steps=steps,
    )


def laplace(*, linearised: bool) -> Method:
    r"""A Laplace approximation whose prior precisions maximise its marginal likelihood.

    The recipe of Immer et al. (2021) for two classes, written again: training at given precisions
    $\tau_w, \tau_v$ of Normal priors takes turns with MacKay's updates of them; curvature is that
    of Gauss and Newton, whole. Predictions are those of the linearised network, with the probit
    approximation, or of the network at the mode. For one hidden layer the kernel of the linearised
    network has a closed form, so that everything is done in the space of the images; see `Kernel`.
    """
    return functools.partial(_laplace, linearised)


def _laplace(linearised: bool, images: Classification, preset: NetworkPreset, seed: int) -> Trained:
    if len(images.classes) != 2:
        raise ValueError("the Laplace approximation is written for two classes.")
    began = time.perf_counter()
    train = images.train.some(slice(None), jnp.result_type(float))
    x = _initial(images, preset, seed)
    tau = {"w": 1.0, "v": 1.0}
    state = _Adam(x, optax.adam(LAPLACE_STEP).init(x))
    for _ in range(TURNS):
        precision = {name: jnp.asarray(value, x["w"].dtype) for name, value in tau.items()}
        for _ in range(ROUNDS_PER_TURN):
            state = _descend(state, train, precision, LAPLACE_STEP)
        kernel = Kernel.of(state.x, images.train.features)
        for _ in range(UPDATES):
            tau = kernel.updated(tau)
    weights = {name: np.asarray(state.x[name])[None] for name in two_layers.SCALES}

    def probabilities(features: np.ndarray) -> np.ndarray:
        if linearised:
            return kernel.predict(tau, features)
        return two_layers.probabilities(weights, features)

    return Trained(
        probabilities,
        time.perf_counter() - began,
        weights=weights,
        theta={name: -0.5 * float(np.log(tau[layer])) for layer, name in two_layers.SCALES.items()},
        num_steps=TURNS * ROUNDS_PER_TURN * ROUND,
    )


class Kernel(NamedTuple):
    r"""The linearised network of one hidden layer and two classes, in the space of the images.

    With $s = (v_1 - v_0) \cdot h$, $h = \tanh(w f)$, the gradients of $s$ have inner products

    $$ K_w(f, f') = (f \cdot f')\,(\delta \cdot \delta'), \quad \delta = (v_1 - v_0)(1 - h^2),
       \qquad K_v(f, f') = 2\, h \cdot h'. $$

    The curvature is $J^\top \Lambda J$ with $\Lambda = p_0 p_1$, so that with
    $K = \Lambda^{1/2} (K_w/\tau_w + K_v/\tau_v) \Lambda^{1/2}$ the number of parameters that the
    data determine is $\operatorname{tr}((I+K)^{-1} K)$.
    """

    x: dict[str, np.ndarray]
    features: Float[np.ndarray, "images inputs"]
    root: Float[np.ndarray, " images"]  # of the curvature
    blocks: dict[str, np.ndarray]

    @classmethod
    def of(cls, x: dict[str, Array], features: np.ndarray) -> Kernel:
        """The kernel at the network x, between the images it was trained on."""
        weights = {name: np.asarray(leaf, np.float64) for name, leaf in x.items()}
        made = cls(weights, features.astype(np.float64), np.ones(len(features)), {})
        score, blocks = made.score(features), made.between(features, features)
        return made._replace(root=np.sqrt(_slope(score)), blocks=blocks)

    def score(self, features: np.ndarray) -> np.ndarray:
        """The score of class 1 less that of class 0."""
        return self._hidden(features) @ self._out

    def between(self, one: np.ndarray, other: np.ndarray) -> dict[str, np.ndarray]:
        """Inner products of the gradients, by layer."""
        first, second = self._hidden(one), self._hidden(other)
        slopes = [(1 - h**2) * self._out for h in (first, second)]
        inputs = one.astype(np.float64) @ other.astype(np.float64).T
        return {"w": inputs * (slopes[0] @ slopes[1].T), "v": 2 * first @ second.T}

    def updated(self, tau: dict[str, float]) -> dict[str, float]:
        r"""MacKay's update: $\tau_l = \operatorname{tr}((I+K)^{-1} K_l) / |x_l|^2$."""
        inverse = np.linalg.inv(self._system(tau))
        found = {}
        for name, block in self.blocks.items():
            scaled = self.root[:, None] * block * self.root / tau[name]
            determined = float(np.sum(inverse * scaled))
            found[name] = min(determined / float(np.sum(self.x[name] ** 2)), LARGEST_PRECISION)
        return found

    def predict(self, tau: dict[str, float], features: np.ndarray) -> np.ndarray:
        """Probabilities of both classes."""
        system, parts = self._system(tau), []
        for at in range(0, len(features), 1000):
            some = features[at : at + 1000].astype(np.float64)
            cross = self.between(self.features, some)
            weighted = self.root[:, None] * sum(cross[name] / tau[name] for name in cross)
            own = self._own(some, tau)
            variance = own - np.sum(weighted * np.linalg.solve(system, weighted), axis=0)
            score = self.score(some) / np.sqrt(1 + np.pi / 8 * np.maximum(variance, 0))
            parts.append(np.stack([_sigmoid(-score), _sigmoid(score)], axis=1))
        return np.concatenate(parts)

    def _own(self, features: np.ndarray, tau: dict[str, float]) -> np.ndarray:
        """The diagonal of the kernel: the prior variance of the scores."""
        hidden = self._hidden(features)
        slope = (1 - hidden**2) * self._out
        first = np.sum(features**2, axis=1) * np.sum(slope**2, axis=1)
        return first / tau["w"] + 2 * np.sum(hidden**2, axis=1) / tau["v"]

    def _system(self, tau: dict[str, float]) -> np.ndarray:
        total = sum(block / tau[name] for name, block in self.blocks.items())
        return np.eye(len(self.root)) + self.root[:, None] * total * self.root

    @property
    def _out(self) -> np.ndarray:
        return self.x["v"][:, 1] - self.x["v"][:, 0]

    def _hidden(self, features: np.ndarray) -> np.ndarray:
        return np.tanh(features.astype(np.float64) @ self.x["w"])


# Training by Adam. #


class _Adam(NamedTuple):
    x: dict[str, Array]
    moments: Any


_ZERO = {"w": 0.0, "v": 0.0}


@jax.jit
def _descend(state: _Adam, images: Images, precision: Any, step_size: float = STEP) -> _Adam:
    """`ROUND` steps on the mean over images of minus the log posterior density."""

    def objective(x: Any) -> Array:
        penalty = sum(precision[name] * jnp.sum(x[name] ** 2) / 2 for name in x)
        return _misfit(x, images) + penalty / len(images.labels)

    def step(state: _Adam, _: Any) -> tuple[_Adam, None]:
        moves, moments = optax.adam(step_size).update(jax.grad(objective)(state.x), state.moments)
        return _Adam(optax.apply_updates(state.x, moves), moments), None

    return jax.lax.scan(step, state, length=ROUND)[0]


@jax.jit
def _misfit(x: Any, images: Images) -> Array:
    features, labels = jnp.asarray(images.features), jnp.asarray(images.labels)
    return two_layers.minus_log_likelihood(two_layers.scores(x, features), labels) / len(labels)


def _initial(images: Classification, preset: NetworkPreset, seed: int) -> dict[str, Array]:
    """The paper's start, one network."""
    shape = (images.train.features.shape[1], preset.num_units, len(images.classes))
    _, particles = two_layers.start("paper", 0.0, 1, shape, seed)
    return {name: leaf[0] for name, leaf in particles.items()}


def _slope(score: np.ndarray) -> np.ndarray:
    return _sigmoid(score) * _sigmoid(-score)


def _sigmoid(score: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(score / 2))
