"""`pipla.networks.train` on the paper's network."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pipla import networks
from pipla.diagnostics import ConvergenceWarning
from pipla.engine.result import Status
from pipla_lab.data.classification import Classification
from pipla_lab.experiments.networks import two_layers
from pipla_lab.experiments.networks.methods import Method, Trained, said, thinned
from pipla_lab.experiments.networks.rows import NetworkPreset

#: Where the layers of `eqx.nn.MLP` are.
LAYERS = {"w": "layers/0", "v": "layers/1"}


def recommended(
    prior: str | Mapping[str, str] = "laplace",
    start: float | None = None,
    activation: Callable[[Any], Any] = jnp.tanh,
    num_particles: int | None = None,
) -> Method:
    """The paper's network, trained with nothing to choose.

    Arguments:
        prior: of both layers, or by layer (`w`, `v`).
        start: where alpha starts, in place of the library's choice.
        activation: of the hidden units.
        num_particles: in place of the preset's.
    """

    def method(images: Classification, preset: NetworkPreset, seed: int) -> Trained:
        began = time.perf_counter()
        for_module, for_run = jax.random.split(jax.random.key(seed))
        module = eqx.nn.MLP(
            images.train.features.shape[1],
            len(images.classes),
            width_size=preset.num_units,
            depth=1,
            activation=activation,
            use_bias=False,
            use_final_bias=False,
            key=for_module,
        )
        named = dict.fromkeys(LAYERS, prior) if isinstance(prior, str) else prior
        layers: Any = {LAYERS[layer]: name for layer, name in named.items()}
        features = images.train.features.astype(jnp.result_type(float))
        network = networks.model(module, features, images.train.labels, layers=layers)
        if start is not None:
            first = LAYERS["w"]
            scales = network.theta["scales"] | {
                first: jnp.full_like(network.theta["scales"][first], start)
            }
            network = dataclasses.replace(network, theta=network.theta | {"scales": scales})
        trained = quiet_train(
            network,
            num_particles=num_particles or preset.train_particles,
            num_steps=preset.train_steps,
            key=for_run,
        )
        names = {LAYERS[layer]: scale for layer, scale in two_layers.SCALES.items()}
        weights = {
            # inputs before outputs, as in the other rows
            layer: np.swapaxes(np.asarray(trained.particles[path]), 1, 2)
            for layer, path in LAYERS.items()
        }
        result = trained.result
        return Trained(
            lambda features: two_layers.probabilities(weights, features, activation),
            time.perf_counter() - began - result.compile_seconds,
            weights=weights,
            **learned_scales(trained, names),
            finite=result.status is not Status.NONFINITE,
            compile_seconds=result.compile_seconds,
            num_steps=result.num_steps,
            num_particles=num_particles or preset.train_particles,
            says=said(trained),
        )

    return method


def quiet_train(network: networks.NetworkModel, **options: Any) -> networks.TrainedNetwork:
    """`networks.train`, whose warnings are in the row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        trained = networks.train(network, progress=False, **options)
    if trained.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return trained


def learned_scales(trained: networks.TrainedNetwork, names: Mapping[str, str]) -> dict[str, Any]:
    """The scales by name with their Monte-Carlo errors, and the trace of the first."""
    errors = trained.scales_mcse
    first = next(iter(names))
    trace = np.asarray(trained.result.theta_trace["scales"][first])
    return {
        "theta": {name: trained.scales[path] for path, name in names.items()},
        "theta_error": {
            name: errors[path] if np.isfinite(errors[path]) else None
            for path, name in names.items()
        },
        "trace": thinned(trace),
    }
