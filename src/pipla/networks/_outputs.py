"""What a trained network has to say: its layers, how its scales were found, its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree
from scipy.special import ndtri

from pipla._intervals import tails_of
from pipla.diagnostics import monte_carlo_error
from pipla.engine.views import series_of
from pipla.networks._families import Classes
from pipla.networks._settling import traces_of
from pipla.report.inference_data import Draws
from pipla.report.numbers import interval
from pipla.report.outputs import Listing, Overview
from pipla.report.page import Figure
from pipla.report.plots import new_figure
from pipla.report.predictions import calibration, observed_against, some_rows
from pipla.report.run_figure import BLUE, run_figure

if TYPE_CHECKING:
    from pipla.networks.trained import TrainedNetwork

EXPLAINED = (
    "alpha: what was learned of the prior of a layer, whose weights have the scale exp(2 alpha); "
    "mcse: its Monte-Carlo error, which more steps make smaller. The interval is of this error: "
    "scales are maximisers, and what the data leave open of them is not in it. 90 % in: this share "
    "of the weights, the largest, has 90 % of the sum of their squares."
)


def columns_of(trained: TrainedNetwork, level: float, unit: float = 1.0) -> dict[str, Any]:
    """A row for each scale, and for the noise of a regression, in units of `unit`."""
    reach = float(ndtri(tails_of(level)[1]))
    names = [f"alpha of {name}" for name in trained.scales]
    values, errors = list(trained.scales.values()), list(trained.scales_mcse.values())
    middle, error = np.asarray(values), np.asarray(errors)
    low, high = middle - reach * error, middle + reach * error
    if trained.noise is not None:
        trace = traces_of(trained.result.theta_trace)["the noise"][trained.result.burn_in :]
        noise, log_error = unit * trained.noise, float(monte_carlo_error(trace))
        middle, error = np.append(middle, noise), np.append(error, noise * log_error)
        ends = noise * np.exp([-reach * log_error, reach * log_error])
        low, high, names = np.append(low, ends[0]), np.append(high, ends[1]), [*names, "noise"]
    return {
        "name": names,
        "part": "theta",
        "estimate": middle,
        "mcse": error,
        "low": low,
        "high": high,
        "level": level,
    }


def overview_of(
    trained: TrainedNetwork,
    names: Sequence[str] | None,
    level: float,
    title: str,
    unit: float = 1.0,
) -> Overview:
    """The layers, the noise, and the inputs of the first layer where it has inputs."""
    columns = columns_of(trained, level, unit)
    about = f"{100 * level:g} % interval"
    rows = []
    for i, layer in enumerate(trained.layers):
        rows.append(
            [
                layer.name,
                layer.prior,
                " × ".join(map(str, layer.shape)),
                f"{columns['estimate'][i]:.3f}",
                f"{columns['mcse'][i]:.2g}",
                interval(columns["low"][i], columns["high"][i]),
                f"{np.exp(2 * columns['estimate'][i]):.3g}",
                f"{_needed(trained.particles[layer.name]):.0%}",
            ]
        )
    head = ["layer", "prior", "weights", "alpha", "mcse", about, "scale", "90 % in"]
    listings = [Listing("Layers", head, rows, whole=True)]
    if trained.noise is not None:
        cells = [columns[name][-1] for name in ("estimate", "mcse", "low", "high")]
        noise = ["noise", f"{cells[0]:.4g}", f"{cells[1]:.2g}", interval(cells[2], cells[3])]
        listings.append(Listing("Noise", ["", "estimate", "mcse", about], [noise]))
    inputs = input_sizes(trained)
    if inputs is not None:
        called = names_of(len(inputs), names)
        order = np.argsort(-inputs, kind="stable")
        shown = [[called[i], f"{inputs[i]:.3g}"] for i in order]
        listings.append(Listing("Inputs", ["input", "size of its weights"], shown))
    count = len(next(iter(trained.particles.values())))
    lead = (
        f"{trained.status.value.capitalize()} after {trained.result.num_steps} steps of "
        f"{trained.num_particles} particles ({trained.result.seconds:.1f} s); {count} draws of the "
        "weights are kept."
    )
    return Overview(title, lead, trained.findings, listings, EXPLAINED)


def names_of(count: int, given: Sequence[str] | None) -> list[str]:
    """The names of the inputs: those given, or x0, x1, ..."""
    if given is None:
        return [f"x{j}" for j in range(count)]
    if len(given) != count:
        raise ValueError(
            f"feature_names must hold {count} names, one for each input, got {len(given)}."
        )
    return [str(name) for name in given]


def input_sizes(trained: TrainedNetwork) -> np.ndarray | None:
    """The root mean square of the weights that leave each input; `None` without such a layer.

    There are inputs where features are vectors and a latent layer takes vectors of their length;
    the first one that does.
    """
    features = jax.tree.leaves(trained.network.likelihood.features)
    if len(features) != 1 or features[0].ndim != 2:
        return None
    for layer in trained.layers:
        if len(layer.shape) == 2 and layer.shape[1] == features[0].shape[1]:
            weights = trained.particles[layer.name].astype(np.float64)
            return np.sqrt(np.mean(weights**2, axis=(0, 1)))
    return None


def _needed(weights: np.ndarray) -> float:
    """The share of the weights of a layer that have 90 % of the sum of squares: a mean."""
    squares = -np.sort(-(weights.reshape(len(weights), -1).astype(np.float64) ** 2), axis=1)
    reached = np.cumsum(squares, axis=1)
    counts = np.sum(reached < 0.9 * reached[:, -1:], axis=1) + 1
    return float(np.mean(counts / squares.shape[1]))


def figures_of(trained: TrainedNetwork, names: Sequence[str] | None, most: int) -> list[Figure]:
    """How the scales and the noise were found, and the inputs that matter."""
    traces = traces_of(trained.result.theta_trace)
    first = min(trained.result.burn_in, max(trained.result.num_steps - 1, 0))
    series = [
        series_of(name, {"log": trace}, first, float(trace[first:].mean()))
        for name, trace in list(traces.items())[:most]
    ]
    title = f"{trained.status.value} after {trained.result.num_steps} steps"
    text = (
        "Left: the logarithm (alpha) of each scale, and of the noise of a regression, with burn-in "
        "and the average. Right: the autocorrelation of the trace after burn-in."
    )
    found = [Figure(run_figure(series, [], title), text)]
    inputs = input_sizes(trained)
    if inputs is not None:
        called = names_of(len(inputs), names)
        order = np.argsort(-inputs, kind="stable")[:most][::-1]
        figure, (axis,) = new_figure(1, width=5, height=1.0 + 0.2 * len(order))
        axis.barh(np.arange(len(order)), inputs[order], color=BLUE)
        axis.set_yticks(np.arange(len(order)), [called[i][:30] for i in order], fontsize=8)
        axis.set_xlabel("root mean square of the weights that leave it")
        text = f"The {len(order)} of {len(inputs)} inputs with the largest weights."
        found.append(Figure(figure, text))
    return found


def draws_of(trained: TrainedNetwork) -> Mapping[str, Draws]:
    """The weights, particles as chains; scales and noise after burn-in in a group of their own."""
    chains = trained.num_particles
    # xarray takes a slash for a path.
    weights = {
        name.replace("/", "."): np.swapaxes(draws.reshape(-1, chains, *draws.shape[1:]), 0, 1)
        for name, draws in trained.particles.items()
    }
    first = min(trained.result.burn_in, max(trained.result.num_steps - 1, 0))
    trace = trained.result.theta_trace
    learned = {
        f"alpha.{name.replace('/', '.')}": values for name, values in trace["scales"].items()
    }
    learned |= {"log_noise": trace["noise"]} if "noise" in trace else {}
    theta = {name: np.asarray(values)[first:][None] for name, values in learned.items()}
    return {"posterior": Draws(weights), "theta": Draws(theta)}


def predictions_of(trained: TrainedNetwork, features: PyTree, labels: Any) -> list[Figure]:
    """Observations beside what is predicted of them, where these are single numbers or classes."""
    rows = some_rows(len(labels))
    chosen = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], features)
    labels = np.asarray(labels)[rows]
    predicted = trained.predict_proba(chosen)
    if isinstance(trained.network.family, Classes):
        last = predicted.shape[1] - 1
        return [calibration(predicted[:, last], labels == last, f"class {last}")]
    return [observed_against(predicted, labels)] if predicted.ndim == labels.ndim == 1 else []
