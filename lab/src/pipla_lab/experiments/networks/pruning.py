"""What is left of a network when small weights, or weak units, are removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipla.report import Cell, Figure, Section, Table, Text, fixed
from pipla_lab.data.classification import Classification
from pipla_lab.experiments.networks import figures, measures, methods, mnist, peers, two_layers
from pipla_lab.experiments.networks.experiment import NetworkEntry, NetworkExperiment, scale, spread
from pipla_lab.experiments.networks.methods import Trained
from pipla_lab.experiments.networks.recommended import recommended
from pipla_lab.experiments.networks.rows import NetworkRow
from pipla_lab.experiments.results import Results

#: The paper's table: prior, averaged before, % zero in w and v, thresholds, error in %, LPPD.
PAPER = (
    ("Laplace", "before", 74.0, 48.0, 0.2, 0.2, 7.0, -0.23),
    ("Laplace", "after", 56.0, 35.0, 1.0, 1.0, 1.5, -0.07),
    ("Normal", "before", 74.0, 48.0, 0.5, 1.1, 15.0, -0.74),
    ("Normal", "before", 16.0, 15.0, 0.2, 0.2, 16.0, -0.78),
    ("Normal", "after", 56.0, 35.0, 7.0, 4.0, 2.0, -0.11),
    ("Normal", "after", 8.6, 7.1, 1.0, 1.0, 1.5, -0.10),
)
#: The shares of w that are set to 0, v being kept; and those of the curves.
SHARES = (0.5, 0.8, 0.9, 0.95)
CURVE = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
#: Curves by share of the hidden units that are removed.
UNITS = tuple(np.linspace(0, 1, 21)[:-1])
#: The most draws that are pruned, evenly spaced: each line of the table evaluates all of them.
PARTICLES = 100
#: An increase of the error, in percentage points, that is called free.
FREE = 0.5


def measured(
    trained: Trained, images: Classification
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Lines of the table and curves of the figures, for one trained network."""
    if set(trained.weights) != {"w", "v"} or not trained.finite:
        return [], {}
    weights = _some(trained.weights)
    forms = {"before": measures.averaged(trained.weights), "after": weights}
    count = len(trained.weights["w"]) // (trained.num_particles or 1)
    if count > 1 and trained.num_particles:
        # The draws of one particle in time, which has its own order of hidden units.
        chosen = {name: layer[:: trained.num_particles] for name, layer in trained.weights.items()}
        forms["one particle"] = measures.averaged(chosen)
    lines = [
        _line("nothing", when, some, _shares(some, 0.0, 0.0), images)
        for when, some in forms.items()
    ]
    lines += [
        _line(f"{w:g} % of w, {v:g} % of v", when, forms[when], _shares(forms[when], w, v), images)
        for when, w, v in ((when, w, v) for prior, when, w, v, *_ in PAPER if prior == "Laplace")
    ]
    lines += [
        _line(f"{100 * share:g} % of w", when, some, _shares(some, 100 * share, 0.0), images)
        for when, some in forms.items()
        for share in SHARES
    ]
    series = {"share of w": np.array(CURVE), "share of units": np.array(UNITS)}
    for when in ("before", "after"):
        some = forms[when]
        found = [_line("", when, some, _shares(some, 100 * s, 100 * s), images) for s in CURVE]
        for name in ("error", "lppd", "occupancy"):
            series[f"{name} {when}"] = np.array([line[name] for line in found])
    series["error by units"] = np.array(
        [_error(without_units(weights, share), images) for share in UNITS]
    )
    lines.append(_units_line(series["error by units"]))
    return lines, series


def _some(weights: measures.Weights) -> dict[str, np.ndarray]:
    """At most `PARTICLES` particles, evenly spaced."""
    count = len(weights["w"])
    at = np.unique(np.linspace(0, count - 1, min(count, PARTICLES)).astype(int))
    return {name: np.asarray(layer)[at] for name, layer in weights.items()}


def without_units(weights: measures.Weights, share: float) -> dict[str, np.ndarray]:
    r"""Each particle without its weakest hidden units, by $|w_{\cdot j}|\,|v_{j \cdot}|$."""
    strength = np.linalg.norm(weights["w"], axis=1) * np.linalg.norm(weights["v"], axis=2)
    place = np.argsort(np.argsort(strength, axis=1), axis=1)  # 0 is the weakest
    kept = place >= round(share * strength.shape[1])
    return {"w": weights["w"] * kept[:, None, :], "v": weights["v"] * kept[:, :, None]}


def _line(
    what: str,
    when: str,
    weights: measures.Weights,
    thresholds: Mapping[str, float],
    images: Classification,
) -> dict[str, Any]:
    pruned = measures.prune(weights, thresholds)
    found: dict[str, Any] = {
        "removed": what,
        "averaged": when,
        "zero_w": pruned.zeros("w"),
        "zero_v": pruned.zeros("v"),
        "threshold_w": float(thresholds["w"]),
        "threshold_v": float(thresholds["v"]),
        "dead": float(100 * pruned.dead.mean()),
        "occupancy": pruned.occupancy,
    }
    for suffix, part in (("", images.test), ("_large", images.large)):
        if part is None:
            found |= {f"error{suffix}": None, f"lppd{suffix}": None}
            continue
        probabilities = two_layers.probabilities(pruned.weights, part.features)
        found[f"error{suffix}"] = measures.error(probabilities, part.labels)
        found[f"lppd{suffix}"] = measures.lppd(probabilities, part.labels)
    return found


def _units_line(errors: np.ndarray) -> dict[str, Any]:
    """The largest share of the units whose removal is free, with all smaller ones."""
    dear = np.flatnonzero(errors > errors[0] + FREE)
    free = UNITS[(dear[0] if len(dear) else len(UNITS)) - 1]
    return {"removed": "units", "averaged": "after", "free_units": float(100 * free)} | {
        "error": float(errors[0]),
        "error_large": None,
    }


def _error(weights: measures.Weights, images: Classification) -> float:
    part = images.test if images.large is None else images.large
    return measures.error(two_layers.probabilities(weights, part.features), part.labels)


def _shares(weights: measures.Weights, w: float, v: float) -> dict[str, float]:
    """Thresholds below which these percentages of the weights are."""
    shares = {"w": w / 100, "v": v / 100}
    return {
        name: float(np.quantile(np.abs(layer), shares[name])) if shares[name] > 0 else 0.0
        for name, layer in weights.items()
    }


# The page. #


def rows() -> list[NetworkEntry]:
    """The published networks, those with learned scales, and one trained by Adam."""
    return [
        NetworkEntry(
            *("MYIPLA", "approximate", "published", methods.published("MYIPLA")),
            detail="Laplace prior",
            seconds=40.0,
        ),
        NetworkEntry(
            *("IPLA", "none", "published", methods.published("IPLA", normal=True)),
            detail="Normal prior",
            seconds=40.0,
        ),
        NetworkEntry(
            *("train", "exact", "recommended", recommended("laplace")),
            detail="Laplace prior",
            seconds=100.0,
        ),
        NetworkEntry(
            *("train", "exact", "recommended", recommended("normal")),
            detail="Normal prior",
            seconds=100.0,
        ),
        NetworkEntry(
            *("train", "exact", "recommended", recommended({"w": "group", "v": "laplace"})),
            detail="group prior per unit",
            seconds=100.0,
        ),
        NetworkEntry("Adam with early stopping", "none", "peer", peers.adam, seconds=10.0),
    ]


def tables(results: Results[NetworkRow]) -> list[Section]:
    """Pruning by threshold and by quantile, the paper's lines first."""
    paper = Table(
        (
            *("prior", "averaged", "% zero in w", "% zero in v", "threshold w", "threshold v"),
            *("error (%)", "LPPD"),
        ),
        [list(line) for line in PAPER],
        caption="The paper's table: particles averaged before pruning, or predictions after it. "
        "The mean of particles is a poor network: each has its own order of hidden units.",
    )
    columns: tuple[str, ...] = ("network", "removed", "averaged", "error, large set (%)")
    columns += ("LPPD, large set", "error (%)", "LPPD", "dead units (%)", "occupancy")
    columns += ("% zero in w", "% zero in v", "threshold w", "threshold v")
    body = []
    for row in results.rows:
        for line in row.pruning:
            if line["removed"] != "units":
                body.append([_name(row), *_cells(line)])
    free = [
        [_name(row), fixed(line["free_units"], 0)]
        for row in results.rows
        for line in row.pruning
        if line["removed"] == "units"
    ]
    ours = (
        "Ours, means over splits; the thresholds are quantiles of each layer. A dead unit has only "
        "zeros before or behind it; occupancy is the share of the weight matrices that is left "
        "without dead units."
    )
    units = "In each particle the units of smallest |w_j| |v_j| go first."
    columns_units = ("network", "units removed for at most half a point (%)")
    return [
        Section("Small weights set to 0", [paper, Text(ours), Table(columns, body)]),
        Section("Hidden units removed", [Text(units), Table(columns_units, free)]),
    ]


def _cells(line: Mapping[str, Any]) -> list[Any]:
    digits = {"dead": 1, "occupancy": 2, "zero_w": 1, "zero_v": 1, "threshold_w": 4}
    digits |= {"threshold_v": 4}
    numbers = [fixed(line[name], count) for name, count in digits.items()]
    errors = [_spread(line, "error"), fixed(line["lppd"], 3)]
    large = [_spread(line, "error_large"), fixed(line["lppd_large"], 4)]
    return [line["removed"], line["averaged"], *large, *errors, *numbers]


def _spread(line: Mapping[str, Any], name: str) -> Cell | None:
    values = [value for value in line["each"][name] if value is not None]
    if not values:
        return None
    mean = float(np.mean(values))
    tail = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return Cell(f"{mean:.2f}{tail}", mean)


def _name(row: NetworkRow) -> str:
    return f"{row.algorithm}{', ' + row.detail if row.detail else ''} ({row.variant})"


def findings(results: Results[NetworkRow]) -> Sequence[Text]:
    """What removing nine weights in ten costs, and how many units can go."""
    said = []
    for row in results.rows:
        lines = {(line["removed"], line["averaged"]): line for line in row.pruning}
        units = lines.get(("units", "after"))
        if units is None:
            continue
        sentence = f"{_name(row)}: {units['free_units']:.0f} % of the hidden units can go for at "
        sentence += "most half a point."
        for when in ("after", "one particle"):
            whole, pruned = lines.get(("nothing", when)), lines.get(("90 % of w", when))
            if whole is None or pruned is None:
                continue
            name = "error" if whole["error_large"] is None else "error_large"
            density = name.replace("error", "lppd")
            sentence += (
                f" Without 90 % of the weights ({'all draws' if when == 'after' else when}) the "
                f"error goes from {whole[name]:.2f} to {pruned[name]:.2f} %, the LPPD from "
                f"{whole[density]:.3f} to {pruned[density]:.3f}."
            )
        said.append(sentence)
    return [Text(sentence) for sentence in said]


def drawn(results: Results[NetworkRow]) -> Mapping[str, Figure]:
    """The paper's figures: error, LPPD and occupancy against what is removed."""
    found: dict[str, Figure | None] = {}
    for when in ("before", "after"):
        names = {
            f"error {when}": "error (%)",
            f"lppd {when}": "LPPD",
            f"occupancy {when}": "occupancy",
        }
        found[when] = figures.curves(
            results,
            names,
            "share of w",
            f"Test error, LPPD and occupancy against the share of both layers that is set to 0; "
            f"particles averaged {when} pruning.",
        )
    found["units"] = figures.curves(
        results,
        {"error by units": "error (%)"},
        "share of units",
        "The error on the largest set there is, by the share of the hidden units removed.",
    )
    return figures.collected(**found, weights=figures.histograms(results))


PRUNING = NetworkExperiment(
    name="bnn-pruning",
    title="Pruning a Bayesian network",
    about="The network of bnn-mnist, pruned after training: weights below a threshold are set to "
    "0, and units without inputs or without outputs are removed. The paper prunes with fixed "
    "thresholds; as the learned scales differ by a factor of a hundred, the thresholds here are "
    "quantiles. Particles are averaged before pruning (one network), or their predictions after "
    "it. Where a run keeps draws in time, a third network is the mean of the draws of one "
    "particle.",
    data=mnist.images,
    columns={
        "method": _name,
        "error (%)": lambda row: spread(row, "error", 2),
        "error, large set (%)": lambda row: spread(row, "error_large", 2),
        "LPPD, large set": lambda row: spread(row, "lppd_large", 4),
        "sd of w": lambda row: spread(row, "std_weights", 3),
        "alpha": lambda row: scale(row, "alpha"),
        "beta": lambda row: scale(row, "beta"),
        "seconds": lambda row: fixed(row.seconds, 1),
    },
    caption="The networks before pruning: means over splits, ± their standard deviation.",
    measured=measured,
    further=tables,
    work=mnist.work,
    entries=rows(),
    presets=mnist.PRESETS,
    figures=drawn,
    findings=findings,
    errata=("E1", "E12"),
)
