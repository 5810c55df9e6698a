"""What `train` returns: a network whose weights are draws from their posterior."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla._intervals import chosen_draws, mixture_quantile, tails_of
from pipla.diagnostics import Finding
from pipla.engine.result import Result, Status
from pipla.engine.run import in_structure_of
from pipla.networks import _settling, files
from pipla.networks._families import Numbers
from pipla.networks._layers import Layer
from pipla.networks._outputs import columns_of, draws_of, figures_of, overview_of, predictions_of
from pipla.networks.modelling import NetworkModel
from pipla.networks.pruning import Average, Criterion, PrunedNetwork, pruned
from pipla.report.inference_data import Draws
from pipla.report.numbers import aligned, paragraph
from pipla.report.outputs import Outputs, Overview
from pipla.report.page import Figure

#: The most draws in time that are kept.
MOST_DRAWS = 20
#: The statuses of a run that made all of its steps. Whether it is unreliable is judged again here.
ENDED = (Status.COMPLETED, Status.UNRELIABLE)


@dataclasses.dataclass(frozen=True)
class TrainedNetwork(Outputs):
    """A trained network; made by `pipla.networks.train`.

    Attributes:
        network: the `NetworkModel`.
        theta: what was learned, averaged over the steps after `result.burn_in`.
        scales, scales_mcse: $\\alpha$ of each layer and its Monte-Carlo error; the prior has the
            scale $e^{2\\alpha}$.
        noise: the standard deviation of the noise of a regression, else `None`.
        particles: the weights of each layer: draws from their posterior, the `num_particles`
            particles of a step, then those of a later one, and so on.
        findings: what speaks against the answer.
        result: the `pipla.Result` of the run, in non-centred coordinates.
        num_observations: how many it was trained on; 0 where a file does not say. A loaded network
            may have been given others, which `prune` does not judge by.
    """

    network: NetworkModel
    theta: dict[str, Any]
    scales: dict[str, float]
    scales_mcse: dict[str, float]
    noise: float | None
    particles: dict[str, np.ndarray]
    num_particles: int
    findings: tuple[Finding, ...]
    result: Result
    num_observations: int = 0

    @classmethod
    def of(
        cls,
        network: NetworkModel,
        result: Result,
        findings: tuple[Finding, ...] | None = None,
        num_observations: int | None = None,
    ) -> TrainedNetwork:
        """From a run that kept its weights, as draws, after every so many steps.

        Arguments:
            network, result: the model and the run.
            findings: those of a loaded network; by default they are made here.
            num_observations: that of a loaded network; by default that of the model.
        """
        if num_observations is None:
            num_observations = network.likelihood.num_rows() or 0
        every = result.snapshot.particles_every or 1
        finite = result.status is not Status.NONFINITE
        found = result.theta if finite else result.theta_last
        theta = in_structure_of("theta", network.theta, found, result.modules)
        # Averages on the host are of float64.
        theta = jax.tree.map(lambda mean, one: jnp.asarray(mean, one.dtype), theta, network.theta)
        saved = jax.tree.map(
            lambda leaf: _thinned(leaf[result.burn_in // every :]), result.saved_particles
        )
        kept = saved is not None and len(jax.tree.leaves(saved)[0]) > 0
        if not kept:  # a run that was stopped early
            back = network.noncentred.back
            last = jax.vmap(back, in_axes=(None, 0))(result.theta_last, result.particles)
            saved = jax.tree.map(lambda leaf: np.asarray(leaf)[None], last)
        particles = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), saved)
        num_particles = _trees.num_particles(result.particles)
        errors = result.theta_mcse["scales"]
        noise = theta.get("noise")
        return cls(
            network=network,
            theta=theta,
            scales={name: float(value) for name, value in theta["scales"].items()},
            scales_mcse={name: float(value) for name, value in errors.items()},
            noise=None if noise is None else float(np.exp(noise)),
            particles=particles,
            num_particles=num_particles,
            findings=_judged(network, result, particles) if findings is None else findings,
            result=result,
            num_observations=num_observations,
        )

    def save(self, path: str | Path) -> Path:
        """Write what was learned to a folder of its own; `pipla.networks.load` reads it.

        A file holds numbers and names, no code: the module and the data are not in it.
        """
        return files.save(self.network, self.result, self.findings, self.num_observations, path)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the algorithm, whose optimiser is made of local functions."""
        return self.__dict__ | {"result": dataclasses.replace(self.result, algorithm=None)}

    @property
    def status(self) -> Status:
        """How the run ended; unreliable where there are `findings`.

        Scales and noise must settle. Other parameters of the network may wander, and are not
        judged: many a network is the same function as another one.
        """
        if self.result.status in ENDED:
            return Status.UNRELIABLE if self.findings else Status.COMPLETED
        return self.result.status

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The latent layers."""
        return self.network.layers

    def predict_proba(self, features: PyTree) -> np.ndarray:
        """The posterior predictive mean: probabilities of the classes, numbers or rates."""
        return self.network.predict(self.theta, self.particles, features)

    def predict(self, features: PyTree) -> np.ndarray:
        """The most probable class of each row; the mean for other families."""
        mean = self.predict_proba(features)
        return self.network.family.point(mean)

    def error(self, features: PyTree, labels: Any) -> float:
        """The share of wrong classes, the root mean squared error or the mean Poisson deviance."""
        return self.network.error(self.theta, self.particles, features, labels)

    def log_predictive_density(self, features: PyTree, labels: Any) -> float:
        """The mean over rows of the log of the predictive density."""
        return self.network.log_predictive_density(self.theta, self.particles, features, labels)

    def predict_interval(self, features: PyTree, level: float = 0.9) -> np.ndarray:
        """Intervals that hold a new observation, noise included: an array (2, rows, ...)."""
        tails = tails_of(level)
        if not isinstance(self.network.family, Numbers) or self.noise is None:
            raise TypeError(
                "predict_interval is for family='regression'; use predict_proba, or "
                "`network.draws` for what each particle predicts."
            )
        draws = self.network.draws(self.theta, self.particles, features)
        return np.stack([mixture_quantile(draws, self.noise, tail) for tail in tails])

    def predict_draws(
        self, features: PyTree, num_draws: int | None = None, *, random_state: Any = 0
    ) -> np.ndarray:
        """New observations from the posterior predictive distribution: an array (draws, rows, ...).

        Arguments:
            features: as in `predict`.
            num_draws: how many; by default as many as there are draws of the weights.
            random_state: the seed of the random numbers, or a generator of NumPy.
        """
        rng = np.random.default_rng(random_state)
        count = len(next(iter(self.particles.values())))
        chosen = chosen_draws(count, num_draws, rng)
        particles = {name: draws[chosen] for name, draws in self.particles.items()}
        means = self.network.draws(self.theta, particles, features)
        return self.network.family.observations(means, self.noise, rng)

    def prune(
        self,
        fraction: float | None = None,
        *,
        threshold: float | dict[str, float] | None = None,
        units: float | None = None,
        average: Average = "after",
        criterion: Criterion | None = None,
        chain: Sequence[Any] | None = None,
        features: PyTree = None,
        labels: Any = None,
    ) -> PrunedNetwork:
        """Set weights to 0, and remove the units that nothing enters or leaves any more.

        The result says what that costs on the observations (`loss_before`, `loss_after`, `lost`),
        and warns where that is much, or where no weight of a layer is left.

        Arguments:
            fraction: this share of all latent weights, those of the smallest score.
            threshold: the weights whose score is below it; a number, or one for each layer.
            units: this share of the units of each hidden layer, those with the smallest product of
                the norms of what enters and what leaves them.
            average: `"after"` prunes every draw, and averages their predictions. `"particle"` makes
                one network, of the mean over time of the best particle. `"before"` makes one of
                the mean of all draws, as in the paper; where particles differ by the order and the
                signs of their units, that is meaningless.
            criterion: the score of a weight. `"sensitivity"`, the default but for `threshold`: by
                how much the scores of the network change without it, to first order, as a root
                mean square over the observations; it compares weights of all layers of any module.
                `"path"`: its magnitude times the norm of the weights that leave its unit.
                `"magnitude"`, the default for `threshold`: layers of small scale go first.
            chain: the layers that follow one another, with an elementwise function in between, for
                `units`, `"path"` and the removal of units. By default the layers of an
                `eqx.nn.MLP`; none for other modules.
            features, labels: the observations to judge by, as for `pipla.networks.model`; by
                default those that the network was trained on. A network that was loaded with other
                observations needs them.
        """
        seen = None
        if features is not None:
            if labels is None:
                raise ValueError("labels must be given with features: the loss is judged by both.")
            seen = self.network.likelihood_of(features, labels)
        elif self.num_observations in (0, self.network.likelihood.num_rows()):
            seen = self.network.likelihood
        return pruned(
            self.network,
            self.theta,
            self.particles,
            num_particles=self.num_particles,
            fraction=fraction,
            threshold=threshold,
            units=units,
            average=average,
            criterion=criterion,
            chain=chain,
            seen=seen,
        )

    # What `Outputs` asks for. #

    def _overview(self, names: Sequence[str] | None, level: float) -> Overview:
        return overview_of(self, names, level, "A network with learned sparsity")

    def _figures(
        self, names: Sequence[str] | None, level: float, most: int, observed: tuple[Any, Any]
    ) -> list[Figure]:
        found = figures_of(self, names, most)
        if observed[0] is None:
            return found
        return [*found, *predictions_of(self, *observed)]

    def _columns(self, names: Sequence[str] | None, level: float) -> dict[str, Any]:
        return columns_of(self, level)

    def _draws(self, names: Sequence[str] | None) -> Mapping[str, Draws]:
        return draws_of(self)

    def __repr__(self) -> str:
        rows = [
            [
                layer.name,
                layer.prior,
                " × ".join(map(str, layer.shape)),
                f"{self.scales[layer.name]:.3f}",
                f"{self.scales_mcse[layer.name]:.2g}",
                f"{np.exp(2 * self.scales[layer.name]):.3g}",
            ]
            for layer in self.layers
        ]
        table = aligned(["layer", "prior", "weights", "alpha", "mcse", "scale"], rows)
        noise = [] if self.noise is None else [f"noise {self.noise:.4g}"]
        said = [line for one in self.findings for line in paragraph(f"WARNING: {one}.")]
        count = len(jax.tree.leaves(self.particles)[0])
        head = (
            f"TrainedNetwork: {self.status.value} after {self.result.num_steps} steps, "
            f"{count} draws of the weights ({self.result.seconds:.1f} s)"
        )
        return "\n".join([head, *table, *noise, *said])


def load(path: str | Path, network: NetworkModel) -> TrainedNetwork:
    """Read a trained network that `TrainedNetwork.save` wrote.

    Arguments:
        path: the folder.
        network: made by `pipla.networks.model` of a module with the same layers, with the same
            priors and family. Its data are not used, and its numbers are replaced: for predictions
            the features and labels of one observation will do.

    This is safe on files from strangers: nothing is executed or unpacked.

    Raises:
        FileNotFoundError: there is nothing in this folder.
        DamagedResultError: there is, but it is incomplete, altered or not ours.
        TypeError: it is not a trained network.
        ValueError: it is one, with other layers, priors, shapes or another family.
    """
    found = files.load(network, path)
    return TrainedNetwork.of(network, found.result, found.findings, found.num_observations)


def _thinned(draws: np.ndarray) -> np.ndarray:
    """At most `MOST_DRAWS` of the draws in time, evenly spaced, the last among them."""
    count = len(draws)
    if count <= MOST_DRAWS:
        return draws
    return draws[np.linspace(0, count - 1, MOST_DRAWS + 1).round().astype(int)[1:]]


def _judged(network: NetworkModel, result: Result, particles: PyTree) -> tuple[Finding, ...]:
    """What speaks against a trained network."""
    if result.status is Status.NONFINITE:
        advice = "" if network.likelihood.is_standardised() else "standardise the features, "
        broken = Finding(
            "theta",
            f"theta or a weight became non-finite at step {result.num_steps + 1}, and the state "
            "before it is kept",
            "look for a log or a division by zero in the module or the loss, "
            f"{advice}and start the scales where `networks.model` does",
        )
        return (broken, *_overfit(network))
    return (
        *_settling.findings_of(result.theta_trace, result.burn_in),
        *_settling.stuck(particles, _trees.num_particles(result.particles)),
        *_overfit(network),
    )


def _overfit(network: NetworkModel) -> tuple[Finding, ...]:
    """More weights without a prior than observations can determine; biases do little harm."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(network.theta["network"])]
    free = sum(math.prod(shape) for shape in shapes if sum(size > 1 for size in shape) > 1)
    rows = network.likelihood.num_rows() or 0
    if free <= rows:
        return ()
    return (
        Finding(
            "weights that are not latent",
            f"the network has {free} weights that are not latent, more than the {rows} "
            "observations; they are learned without a prior, fit these observations too well, and "
            "make predictions overconfident",
            "put more layers under a prior, or fix them",
        ),
    )
