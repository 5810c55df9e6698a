"""What is called with odd arguments: every public callable, each with one valid call.

A row whose valid call is not known here (a name that was added later) is still called, with odd
values for all of its required arguments.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import pipla
import pipla.algorithms
import pipla.completion
import pipla.imaging
import pipla.networks
import pipla.regression
from pipla import hooks, likelihoods, operators, problems, prox, tuning
from pipla.operators import blur
from pipla_lab import data, theory

MODULES = {
    "pipla": pipla,
    "prox": prox,
    "algorithms": pipla.algorithms,
    "operators": operators,
    "blur": blur,
    "likelihoods": likelihoods,
    "tuning": tuning,
    "problems": problems,
    "hooks": hooks,
    "imaging": pipla.imaging,
    "completion": pipla.completion,
    "regression": pipla.regression,
    "networks": pipla.networks,
    "theory": theory,
    "data": data,
}
#: Estimators: `fit` checks the arguments.
ESTIMATORS = {
    "TVDenoiser": pipla.imaging,
    "TVDeconvolution": pipla.imaging,
    "SparseLinearRegression": pipla.regression,
    "SparseLogisticRegression": pipla.regression,
    "SparsePoissonRegression": pipla.regression,
}

#: Public names that are not called: types, records that the library fills, and what a new
#: term, operator or algorithm is made of.
NOT_CALLED = {
    *("prox.ClosedForm", "prox.Fixed", "prox.Iterative", "prox.SoftThreshold", "prox.Term"),
    *("prox.Hyperparameter", "prox.Scalar", "prox.Solution", "prox.hyperparameter"),
    *("prox.operands", "prox.require_floating", "prox.require_smoothing"),
    *("prox.require_smoothings", "prox.check_positive", "prox.check_nonnegative", "prox.Number"),
    *("algorithms.Algorithm", "algorithms.Geometry", "algorithms.Langevin", "algorithms.Wrapper"),
    *("algorithms.WrapperState", "algorithms.number", "algorithms.register", "algorithms.Number"),
    *("operators.Operator", "operators.Eigenbasis", "likelihoods.Likelihood", "prox.Zero"),
    *("tuning.TheoryWarning", "hooks.View", "hooks.Hook", "hooks.Progress"),
    *("pipla.Status", "pipla.Result", "pipla.SweepResult", "pipla.Fit", "pipla.Extrapolation"),
    "completion.Completion",
    *("networks.NetworkModel", "networks.TrainedNetwork", "networks.PrunedNetwork"),
    *("theory.Bound", "theory.Plan", "theory.Order"),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """A callable, the arguments of a valid call (by name), and how often it is chosen.

    `row` is its row in the table of results; its name by default.
    """

    name: str
    call: Callable[..., Any]
    valid: dict[str, Any]
    weight: float = 1.0
    row: str = ""


# Valid arguments. #


def _float(values: Any) -> jax.Array:
    return jnp.asarray(values, jnp.result_type(float))


def _potential(theta: Any, x: Any, data: Any) -> Any:
    return jnp.sum((x - data) ** 2) / 2


def _convex(theta: Any, x: Any, data: Any) -> Any:
    return _potential(theta, x, data) + theta**2


@functools.cache
def _model() -> pipla.Model:
    return pipla.Model(_potential, prox.LaplaceLocation(), data=_float([1.0, -2.0, 0.5]))


@functools.cache
def _result() -> pipla.Result:
    return pipla.run(_model(), pipla.PIPGLA(0.01), num_steps=4, check=False, **_start())


def _start() -> dict[str, Any]:
    return {
        "theta": _float(0.5),
        "particles": _float(np.random.default_rng(0).normal(size=(2, 3))),
        "key": jax.random.key(0),
    }


def _image() -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 255, size=(16, 16))


def _terms() -> dict[str, tuple[prox.Term, Any, Any]]:
    """Terms by name, with a theta and an x that suit them."""
    vector, matrix = _float([1.0, -3.0, 0.2]), _float([[1.0, -3.0], [0.2, 0.6], [0.0, 1.0]])
    parts = ({"a": _float(0.1), "b": _float(0.2)}, {"v": vector, "w": matrix})
    addressed = prox.LaplaceLocation().on(theta="a", x="v")
    return {
        "LaplaceLocation": (prox.LaplaceLocation(), _float(0.1), vector),
        "GaussianLocation": (prox.GaussianLocation(), _float(0.1), vector),
        "LaplaceScale": (prox.LaplaceScale(), _float(0.1), vector),
        "UniformBox": (prox.UniformBox(), _float(2.0), vector),
        "UniformLogBox": (prox.UniformLogBox(), _float(0.7), vector),
        "Strength": (prox.Strength(prox.GroupLasso(axis=0)), _float(0.1), matrix),
        "NuclearStrength": (prox.NuclearStrength(normalised=True), _float(0.1), matrix),
        "TVStrength": (prox.TVStrength(), _float(0.1), matrix),
        "L1": (prox.L1(), None, vector),
        "SquaredL2": (prox.SquaredL2(), None, vector),
        "ElasticNet": (prox.ElasticNet(), None, vector),
        "GroupLasso": (prox.GroupLasso(axis=(0, 1)), None, matrix),
        "NuclearNorm": (prox.NuclearNorm(), None, matrix),
        "TotalVariation": (prox.TotalVariation(), None, matrix),
        "HardTanh": (prox.HardTanh(), None, vector),
        "Box": (prox.Box(_float([0.0, 0.0, 0.0]), 1.0), None, vector),
        "NonNegative": (prox.NonNegative(), None, vector),
        "Simplex": (prox.Simplex(), None, vector),
        "Zero": (prox.Zero(), None, vector),
        "Scaled": (2.0 * prox.LaplaceLocation(), _float(0.1), vector),
        "Translated": (prox.LaplaceLocation().translate(vector), _float(0.1), vector),
        "On": (addressed, *parts),
        "Sum": (addressed + prox.TotalVariation().on(x="w"), *parts),
    }


def _of_terms() -> list[Target]:
    targets = []
    for name, (term, theta, x) in _terms().items():
        at = {"theta": theta, "x": x}
        lam = {"lam_theta": _float(0.1), "lam_x": _float(0.2)}
        particles = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), x)
        calls: dict[str, dict[str, Any]] = {
            "value": at,
            "prox": at | lam,
            "solve": at | lam | {"warm": term.warm_start(theta, x)},
            "envelope": at | lam,
            "envelope_gradient": at | lam,
            "closed_form": {"theta": theta, "particles": particles},
            "time_unit": at,
            "largest_smoothing": at,
            "warm_start": at,
            "coupled_sizes": at,
            "on": {"theta": "a", "x": "b"},
            "translate": {"shift": _float(1.0)},
            "__rmul__": {"weight": 2.0},
        }
        for method, valid in calls.items():
            weight = 0.6 if method in ("prox", "envelope", "envelope_gradient") else 0.15
            call = getattr(term, method)
            targets.append(Target(f"{name}().{method}", call, valid, weight, f"term.{method}"))
    return targets


def _of_operators() -> list[Target]:
    image = _float(_image())
    made = {
        "Identity": (operators.Identity(), image),
        "Mask": (operators.Mask(np.ones((16, 16))), image),
        "Dense": (operators.Dense(np.eye(3)), _float([1.0, 2.0, 3.0])),
        "Separable": (operators.Separable((np.eye(16), np.eye(16))), image),
        "CircularConvolution": (operators.CircularConvolution(blur.box(3), (16, 16)), image),
        "WindowMean": (operators.WindowMean(3, (16, 16)), image),
    }
    targets = []
    for name, (operator, x) in made.items():
        targets += [
            Target(f"{name}().apply", operator.apply, {"x": x}),
            Target(f"{name}().adjoint", operator.adjoint, {"y": x}),
            Target(f"{name}().__matmul__", operator.__matmul__, {"first": operators.Identity()}),
        ]
    return [_renamed(target) for target in targets]


def _of_models() -> list[Target]:
    model, start = _model(), _start()
    one = {"theta": start["theta"], "x": start["particles"][0]}
    many = {"theta": start["theta"], "particles": start["particles"]}
    problem = problems.toy(5)
    return [
        Target("Model().potential", model.potential, one),
        Target("Model().smooth_value", model.smooth_value, one),
        Target("Model().gradients", model.gradients, many),
        Target("Model().check", model.check, many),
        Target("Model().closed_form", model.closed_form, many),
        Target("Result().save", _result().save, {"path": "run"}, 0.3),
        Target(
            "Problem().particles",
            problem.particles,
            {"key": start["key"], "num_particles": 2, "theta": start["theta"]},
        ),
    ]


@functools.cache
def _network() -> pipla.networks.NetworkModel:
    module = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    features = np.random.default_rng(3).normal(size=(12, 3))
    return pipla.networks.model(module, features, np.arange(12) % 2)


def _estimate(kind: str, **arguments: Any) -> Any:
    """Make an estimator and fit it: scikit-learn's rule is that `fit` checks the arguments."""
    arguments = {**arguments}
    to_fit = {name: arguments.pop(name) for name in _TO_FIT if name in arguments}
    return getattr(ESTIMATORS[kind], kind)(**arguments).fit(**to_fit)


#: What an estimator gets when it is fitted.
_TO_FIT = ("X", "y", "sample_weight")


def _valid_calls() -> dict[str, dict[str, Any]]:
    """Arguments of a valid call by the name of the callable; `weight` is how often it is made."""
    start, image = _start(), _image()
    model, many = _model(), {"theta": start["theta"], "particles": start["particles"]}
    algorithm, steps = pipla.PIPGLA(0.01), {"step_size": 0.01, "theta_scale": 1.0}
    moves = {"theta_update": "prox", "antithetic": False, "num_moves": 1, "theta_optimizer": None}
    scheme = steps | moves | {"theta_noise": True, "name": ""}
    smoothed = {"smoothing": 0.1}
    deconvolution = {"psf": blur.box(3), "boundary": "circular"}
    fourier = {"eigenvalues": _float(np.ones((4, 3))), "shape": (4, 4), "axes": (0, 1)}
    restored = {"operator": operators.Identity(), "observed": image, "noise": 5.0}
    bounded = {
        "algorithm": "MYIPLA",
        "constants": theory.Constants(1.0, 2.0, 1, 4),
        "numbers": theory.Numbers(1e-3, 0.1, 10, 100),
    }
    rng = np.random.default_rng(2)
    features, places = rng.normal(size=(12, 3)), np.arange(12)
    design = {"features": features, "weights": np.ones(12), "offsets": np.zeros(12), "x": None}
    regression = {"prior": "learned", "fit_intercept": True, "standardise": True}
    regression |= {"threshold": None, "warm_start": False, "random_state": 0, "weight_": 0.5}
    regression |= {"X": features, "sample_weight": np.ones(12)}
    return {
        "IPLA": steps | moves,
        "PGD": steps | moves,
        "SOUL": steps | {"num_moves": 10},
        "PIPULA": steps | moves,
        "PPGD": steps | moves,
        "RPL": {"step_size": 0.03, "first": 10.0, "change_after": 15.0},
        **dict.fromkeys(("MYIPLA", "MYPGD", "MYULA"), steps | moves | smoothed),
        **{
            name: steps | moves | smoothed | {"reflected": False, "weight_": 1.0}
            for name in ("PGLA", "PIPGLA")
        },
        "SAPG": steps | smoothed | {"gain": 10.0},
        "SKROCK": steps | smoothed | {"num_stages": 10},
        "Adaptive": {"scheme": algorithm, "first": 1.0, "last": 0.06, "change_after": 40.0},
        "Annealed": {"scheme": algorithm, "first": 10.0, "change_after": 20.0, "name": "a"},
        "MetropolisAdjusted": steps | smoothed | {"decay_after": 1000.0, "decay_power": 0.7},
        "Euler": scheme,
        "FullProx": scheme,
        "EnvelopeEuler": scheme | smoothed,
        "ExponentialFlow": scheme | {"reflected": True},
        "ForwardBackward": scheme | smoothed | {"reflected": False},
        "StabilisedEuler": scheme | smoothed | {"num_stages": 10},
        "Model": {"smooth": _potential, "nonsmooth": prox.L1(), "data": start["particles"]},
        "Save": {"moments_every": 10, "particles_every": None, "quantity": None},
        "load": {"path": "missing"},
        "map_estimate": {"model": model, "theta": start["theta"], "x": start["particles"][0]}
        | {"num_steps": 20, "tolerance": 1e-4, "step_size": 0.1},
        "noncentred": {"model": model},
        "restore": restored
        | {"isotropic": False, "axes": None, "strength": None, "num_steps": 4}
        | {"num_particles": 2, "seed": 0, "maximise": False, "progress": False, "weight_": 0.3},
        "run": {"model": model, "algorithm": algorithm, "num_steps": 4, "burn_in": 0, "save": None}
        | {"callbacks": (), "progress": False, "check": False, "chunk_size": None}
        | start
        | {"weight_": 1.0},
        "resume": {"result": _result(), "model": model, "num_steps": 4, "algorithm": None}
        | {"save": None, "callbacks": (), "progress": False, "chunk_size": None, "weight_": 1.0},
        "sweep": {"model": model, "algorithms": algorithm, "num_steps": 4, "num_replicates": 2}
        | {"start_per_replicate": False, "pair": False, "burn_in": 0, "save": None}
        | {"callbacks": (), "progress": False, "chunk_size": None, "weight_": 1.0}
        | start,
        "fit": {"model": model, "theta": start["theta"], "x": start["particles"][0]}
        | {"particles": None, "num_particles": 4, "tolerance": None, "max_steps": 300}
        | {"max_seconds": None, "key": start["key"], "weight_": 1.0},
        "extrapolate": {"model": model, "algorithm": algorithm, "num_steps": 8, "burn_in": 2}
        | start
        | {"weight_": 0.5},
        "IRPL": {"step_size": 0.03, "first": 8.0, "change_after": 25.0},
        "Minibatch": {"scheme": algorithm, "size": 2, "name": "", "control_variate": False}
        | {"data_rows": True},
        "BlockGibbs": {"gain": 0.2, "interweave_after": 0.0, "theta_update": "interwoven"},
        "Select": {"which": np.eye(4) > 0, "shape": (4, 4)},
        "Sparse": {"matrix": sparse.eye_array(3)},
        "Flattened": {"eigenvalues": _float([1.0, 2.0, 3.0, 4.0]), "shape": (2, 2)}
        | {"basis": operators.Diagonal(_float([1.0, 2.0, 3.0, 4.0]))},
        "Factors": {"rows": places % 4, "columns": places // 4, "values": features[:, 0]}
        | {"shape": (4, 3), "biases": True},
        "Logistic": {"labels": places % 2} | design,
        "Multinomial": {"labels": places % 3, "num_classes": 3, "reference": False}
        | design
        | {"offsets": np.zeros((12, 3))},
        "Poisson": {"counts": places, "link": "log"} | design,
        "deconvolve": {"observed": image, "psf": blur.box(3), "noise": 5.0, "boundary": "reflect"}
        | {"axes": None, "num_steps": 4, "num_particles": 2, "maximise": False, "seed": 0}
        | {"progress": False, "weight_": 0.3},
        "complete": {"observed": np.where(features > 1, np.nan, features), "prior": "factors"}
        | {"noise": None, "max_rank": 1, "biases": True, "num_steps": 6, "num_particles": 1}
        | {"seed": 0, "progress": False, "weight_": 0.5},
        "networks.model": {"module": eqx.nn.MLP(3, 2, 4, 1, key=start["key"]), "layers": None}
        | {"features": features, "labels": places % 2, "family": "classification"}
        | {"prior": "laplace", "loss": None, "weight_": 0.5},
        "networks.load": {"path": "missing", "network": _network()},
        "train": {"network": _network(), "num_particles": 2, "num_steps": 4, "batch_size": None}
        | {"key": start["key"], "callbacks": (), "progress": False, "weight_": 0.5},
        "Constants": {"mu": 1.0, "lipschitz": 2.0, "dim_theta": 1, "dim_x": 4}
        | {"g2_lipschitz": 2.0, "theta_in_g2": True, "start": 1.0, "smoothing_rate": None},
        "Numbers": {"step_size": 1e-3, "smoothing": 0.1, "num_particles": 10, "num_steps": 100},
        "bound": bounded | {"proof": "entropy"},
        "conditions": bounded,
        "published_bound": bounded
        | {"theta_gradient": 1.0, "curvature": 1.0, "discretisation": 1.0, "second_moment": 1.0},
        "plan": {"error": 0.1, "mu": 1.0, "lipschitz": 2.0, "dim_theta": 1, "dim_x": 4}
        | {"algorithm": "PIPGLA", "g2_lipschitz": 2.0, "theta_in_g2": True, "start": 1.0}
        | {"smoothing_rate": None, "step_size": None, "smoothing": None, "num_particles": None},
        "complexity": {"version": "published"},
        "assumptions": {"model": model} | many,
        "measured": {"model": pipla.Model(_convex, prox.L1(), data=model.data), "start": 1.0}
        | many,
        "SparseLinearRegression": regression | {"y": features[:, 0]},
        "SparseLogisticRegression": regression | {"y": places % 2, "class_weight": None},
        "SparsePoissonRegression": regression | {"y": places},
        "L1": {"weight": 1.0},
        "Box": {"lower": 0.0, "upper": 1.0},
        "ElasticNet": {"l1": 1.0, "l2": 1.0},
        "GaussianLocation": {"scale": 1.0},
        "GroupLasso": {"weight": 1.0, "axis": -1},
        "HardTanh": {"approximation": None},
        "LaplaceLocation": {"scale": 1.0, "approximation": None, "sweeps": 40},
        "LaplaceScale": {"approximation": None},
        "NuclearNorm": {"weight": 1.0},
        "NuclearStrength": {"normalised": True, "approximation": None},
        "On": {"term": prox.L1(), "theta": "a", "x": "b"},
        "Scaled": {"term": prox.L1(), "weight": 2.0},
        "Simplex": {"total": 1.0},
        "SquaredL2": {"weight": 1.0},
        "Strength": {"regulariser": prox.L1(), "rate": 1.0, "degrees": 3, "normalised": True}
        | {"tolerance": 1e-4, "substitute": None},
        "Sum": {"terms": (prox.L1().on(x="a"), prox.L1().on(x="b"))},
        "TVStrength": {"isotropic": False, "tolerance": 1e-4, "max_iterations": 200, "axes": (0,)}
        | {"degrees": 3, "native": True},
        "TotalVariation": {"weight": 1.0, "isotropic": False, "tolerance": 1e-4, "axes": (0,)}
        | {"max_iterations": 200, "native": True},
        "Translated": {"term": prox.L1(), "shift": 1.0},
        "UniformBox": {"approximation": None},
        "separable_sum": {"first": prox.L1().on(x="a"), "second": prox.L1().on(x="b")},
        "CircularConvolution": {"psf": blur.box(3), "shape": (16, 16), "axes": (0, 1)},
        "Composed": {"last": operators.Identity(), "first": operators.Identity()},
        "Dense": {"matrix": np.eye(3)},
        "Diagonal": {"eigenvalues": _float([1.0, 2.0])},
        "Fourier": fourier,
        "Rotations": {"eigenvalues": _float(np.ones((2, 2))), "axes": (0, 1)}
        | {"rotations": (_float(np.eye(2)), _float(np.eye(2)))},
        "Mask": {"mask": np.ones((16, 16))},
        "Separable": {"matrices": (np.eye(4), np.eye(4)), "axes": (0, 1), "ndim": 2},
        "WindowMean": {"width": 3, "shape": (16, 16)},
        "convolution": {"psf": blur.box(3), "shape": (16, 16), "boundary": "reflect"}
        | {"axes": (0, 1)},
        "blur.box": {"width": 3, "axes": 2},
        "blur.gaussian": {"std": 1.0, "axes": 2},
        "blur.parse": {"text": "box:3"},
        "blur.checked": {"psf": blur.box(3)},
        "blur.as_kernel": {"psf": blur.box(3)},
        "blur.centred": {"psf": blur.box(3), "shape": (16, 16), "axes": (0, 1)},
        "blur.separate": {"psf": blur.box(3)},
        "blur.blur_matrix": {"kernel": np.ones(3) / 3, "size": 16, "boundary": "reflect"},
        "Gaussian": {"operator": operators.Identity(), "observations": image, "noise": 5.0}
        | {"theta": None},
        "Function": {"function": _potential},
        "even_softplus": {"z": start["particles"]},
        "as_likelihood": {"smooth": _potential},
        "LocalGeometry": {"model": model, "probes": 2} | many,
        "broken_conditions": {"algorithm": algorithm, "model": model, "where": "here"} | many,
        "suggest": {"model": model, "theta_scale": "auto", "smoothing": None} | many,
        "deblurring": {"image": "camera", "protocol": "bsnr30", "crop": 16, "seed": 0}
        | {"iterations": 5, "weight_": 0.5},
        "find_image": {"name": "camera"},
        "gaussian_hierarchy": {"unknown": "location", "dimension": 20, "noise": 1.0, "seed": 0},
        "logistic": {"prior": "laplace", "dimension": 5, "observations": 9, "seed": 0}
        | {"authors": False, "approximation": None},
        "toy": {"dimension": 5, "noise": 1.0, "ridge": 0.0, "truth": -3.0, "seed": 0}
        | {"authors": False},
        "Every": {"every": 3},
        "Evaluate": {"function": _potential, "every": 3},
        "EarlyStop": {"tolerance": 0.1, "every": 200, "least": 400},
        "Log": {"path": "log.csv", "every": 100},
        "as_image": {"array": image, "name": "image"},
        "estimate_noise": {"observed": image, "channel_axis": None},
        "mse": {"image": image, "truth": image},
        "psnr": {"image": image, "truth": image, "peak": 255},
        "ssim": {"image": image, "truth": image, "peak": 255},
        "read_image": {"path": "missing.png"},
        "write_image": {"folder": "images", "name": "a", "pixels": image / 255}
        | {"depth": "uint8", "limits": None},
        "TVDenoiser": {"noise": 5.0, "isotropic": False, "channel_axis": None, "num_steps": 4}
        | {"random_state": 0, "X": image, "weight_": 0.3},
        "TVDeconvolution": deconvolution
        | {"noise": 5.0, "isotropic": False, "channel_axis": None, "num_steps": 4}
        | {"random_state": 0, "X": image, "weight_": 0.3},
    }


def public_names() -> dict[str, Any]:
    """Every public callable once, by `module.name`, without records and the names not called."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for module_name, module in MODULES.items():
        names = getattr(module, "__all__", None)
        if names is None:
            names = [
                name
                for name, value in vars(module).items()
                if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
            ]
        for name in names:
            value = getattr(module, name)
            full = f"{module_name}.{name}"
            record = isinstance(value, type) and issubclass(value, tuple | Exception)
            if not callable(value) or record or full in NOT_CALLED or id(value) in seen:
                continue
            if typing.get_origin(value) is None:  # not an alias of a type, such as a Literal
                seen.add(id(value))
                found[full] = value
    return found


def targets() -> list[Target]:
    """All targets: public names, then methods of terms, operators and models."""
    valid = _valid_calls()
    found = []
    for full, call in public_names().items():
        name = full.rsplit(".", 1)[1]
        arguments = dict(valid.get(full, valid.get(name, {})))
        weight = arguments.pop("weight_", 1.0)
        if name in ESTIMATORS:
            call = functools.partial(_estimate, name)
        if name == "separable_sum":
            call = _positional(call)
        if not arguments:
            arguments = _required(call)
        if arguments:
            found.append(Target(full, call, arguments, weight))
    return found + _of_terms() + _of_operators() + _of_models()


def _positional(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **arguments: call(*arguments.values())


def _renamed(target: Target) -> Target:
    """The target with the names that its signature gives to its arguments."""
    names = list(inspect.signature(target.call).parameters)
    return dataclasses.replace(target, valid=dict(zip(names, target.valid.values(), strict=False)))


def _required(call: Callable[..., Any]) -> dict[str, Any]:
    """The required arguments of a callable whose valid call is not known, all of them `None`."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    return {p.name: None for p in parameters if p.kind not in kinds and p.default is p.empty}
