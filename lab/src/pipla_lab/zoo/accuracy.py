"""How well an algorithm does on the problems of the zoo, whose answers are known."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import algorithms
from pipla.algorithms.base import Algorithm
from pipla.diagnostics import ConvergenceWarning
from pipla.engine.result import Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.fitting import fit
from pipla.fitting.fitter import MANY_PARTICLES
from pipla.models.noncentred import noncentred
from pipla.report import Cell, Table, fixed
from pipla.tuning import TheoryWarning
from pipla_lab import checks, zoo
from pipla_lab.zoo import Answer, ZooProblem
from pipla_lab.zoo.base import flat

#: What counts as right: theta in standard errors, or relative where that is more; means of x in
#: sds, sds relative. Each plus twice the Monte-Carlo errors.
THETA, THETA_RELATIVE, MEAN, SD = 0.1, 0.01, 0.1, 0.05
#: The algorithms that can be put beside `fit`: they get the gradients that it took. `recommended`
#: was the rule of this library before there was `fit`: PIPGLA in non-centred form, reflected, with
#: antithetic particles, in `Adaptive`, which finds its steps.
PEERS = ("PIPGLA", "MYIPLA", "PIPULA", "MYPGD", "recommended")
#: The fewest gradients of a peer, over all of its particles.
FEWEST = 100 * MANY_PARTICLES
#: The steps of a peer between two looks at the clock.
CHUNK = 100


class Row(NamedTuple):
    """One algorithm on one problem.

    Attributes:
        problem, algorithm: which.
        theta_error: the largest error of a part of theta, in its standard errors.
        mean_error: the largest error of a posterior mean, in sds.
        sd_error: the largest relative error of a posterior sd.
        right: whether all three are small enough; where a part of theta has no maximum, whether the
            algorithm says that something is wrong.
        claimed: whether the algorithm itself says that it has arrived, without a warning.
        evaluations: of the gradient, over all particles.
        seconds: of the steps.
        words: what it says against its own answer.
        stopped: whether it was stopped because it took too long.
    """

    problem: str
    algorithm: str
    theta_error: float
    mean_error: float
    sd_error: float
    right: bool
    claimed: bool
    evaluations: int
    seconds: float
    words: str
    stopped: bool = False

    @property
    def verdict(self) -> str:
        """In a word; `WRONG` is wrong without a word."""
        if self.stopped:
            return "stopped"
        if self.right:
            return "right" if self.claimed else "right, with doubts"
        return "WRONG" if self.claimed else "wrong, said so"


def measure(
    names: Sequence[str] | None = None,
    peers: Sequence[str] = (),
    seed: int = 0,
    most: int | None = None,
    seconds: float | None = None,
) -> Iterator[Row]:
    """`pipla.fit` on the problems of these names (all by default), and peers beside it.

    Arguments:
        names: of the problems.
        peers: of `PEERS`; each gets the gradients that the fit took, and no more than `most`.
        seed: of the random numbers.
        most: the most gradients of a peer; no limit by default.
        seconds: the most seconds of a peer, likewise; stopped ones have no answer.
    """
    for peer in peers:
        checks.choice("algorithm", peer, PEERS)
    if most is not None:
        checks.integer("most", most, least=FEWEST)
    if seconds is not None:
        checks.positive("seconds", seconds)
    for name in names or zoo.names():
        problem = zoo.get(name)
        key = jax.random.key(seed)
        row = _fitted(problem, key)
        yield row
        for peer in peers:
            limit = row.evaluations if most is None else min(row.evaluations, most)
            yield _run(problem, peer, max(limit, FEWEST), key, seconds)


def table(rows: Sequence[Row], most: int | None = None, seconds: float | None = None) -> Table:
    """The rows as a table; `most` and `seconds` are the limits that `measure` was given."""
    columns = ("problem", "algorithm", "theta", "mean", "sd", "gradients", "s", "verdict")
    cells = [
        (
            row.problem,
            row.algorithm,
            _error(row.theta_error),
            _error(row.mean_error),
            _error(row.sd_error),
            Cell(f"{row.evaluations:.1e}", row.evaluations),
            fixed(row.seconds, 1),
            Cell(row.verdict, float(row.right), "flag" if row.verdict == "WRONG" else ""),
        )
        for row in rows
    ]
    caption = (
        "Largest errors: theta in its standard errors, means of x in sds, sds of x relative. "
        "WRONG is wrong without a warning."
    )
    if any(row.algorithm != "fit" for row in rows):
        limit = "" if most is None else f", but no more than {most:.1e}"
        caption += f" The others have as many gradients as fit{limit}."
        if seconds is not None:
            caption += f" Those that took more than {seconds:g} s were stopped."
    return Table(columns, cells, caption)


def counts(rows: Sequence[Row]) -> Table:
    """How often each algorithm is right, with and without doubts, and wrong."""
    verdicts = ("right", "right, with doubts", "wrong, said so", "WRONG", "stopped")
    found = {row.algorithm: [0] * len(verdicts) for row in rows}
    for row in rows:
        found[row.algorithm][verdicts.index(row.verdict)] += 1
    return Table(("algorithm", *verdicts), [(name, *each) for name, each in found.items()])


def _error(value: float) -> Cell | None:
    """An error with three decimals, or its order of magnitude above 1000; none of what stopped."""
    if np.isinf(value):
        return None
    return fixed(value, 3) if value < 1000 else Cell(f"{value:.0e}", value)


def _fitted(problem: ZooProblem, key: Any) -> Row:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = fit(problem.model, theta=problem.theta, x=problem.x, key=key)
    return _row(
        problem,
        "fit",
        (found.theta, found.theta_mcse, found.x_mean, found.x_sd),
        found.converged and not found.findings,
        found.evaluations,
        found.seconds,
        "; ".join(map(str, found.findings)),
    )


def _run(problem: ZooProblem, name: str, evaluations: int, key: Any, seconds: float | None) -> Row:
    """A peer, from the same start, for as many gradients."""
    model, theta = problem.model, problem.theta
    spread = jax.random.normal(jax.random.key(1), (MANY_PARTICLES,))
    particles = jax.tree.map(
        lambda leaf: leaf[None] + 1e-3 * spread.reshape(-1, *[1] * jnp.ndim(leaf)), problem.x
    )
    quantity = None
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, TheoryWarning):
            warnings.simplefilter("ignore", category)
        algorithm: Algorithm
        if name == "recommended":
            plain = noncentred(model)
            model, quantity = plain
            particles = plain.start(theta, particles)
            scheme = algorithms.PIPGLA(1.0, theta_noise=False, antithetic=True, reflected=True)
            algorithm = algorithms.Adaptive(scheme)
        else:
            algorithm = getattr(algorithms, name)()
        result = run(
            model,
            algorithm,
            theta=theta,
            particles=particles,
            num_steps=evaluations // MANY_PARTICLES,
            key=key,
            save=Save(quantity=quantity),
            callbacks=[lambda view: seconds is not None and view.seconds > seconds],
            chunk_size=CHUNK,
        )
    if result.status is Status.STOPPED:
        made, unknown = result.num_steps * MANY_PARTICLES, np.inf
        return Row(
            problem.name, name, unknown, unknown, unknown, False, False, made, result.seconds,
            result.message, True,
        )  # fmt: skip
    sd = jax.tree.map(np.sqrt, result.x_variance)
    claimed = result.status is Status.COMPLETED and not result.findings
    answers = (result.theta, result.theta_mcse, result.x_mean, sd)
    words = "; ".join(map(str, result.findings))
    return _row(problem, name, answers, claimed, evaluations, result.seconds, words)


def _row(
    problem: ZooProblem,
    algorithm: str,
    answers: tuple[PyTree, PyTree, PyTree, PyTree],
    claimed: bool,
    evaluations: int,
    seconds: float,
    words: str,
) -> Row:
    """The errors of an answer, and whether they are small enough."""
    known = problem.answer
    theta, mcse, mean, sd = map(flat, answers)
    errors = _errors(known, theta, mean, sd)
    stderr = flat(known.theta_stderr)
    allowed = np.maximum(THETA * stderr, THETA_RELATIVE * np.abs(flat(known.theta)))
    slack = 2 * np.hypot(mcse, flat(known.theta_error))
    holds = np.abs(theta - flat(known.theta)) <= allowed + slack
    right = (
        not claimed
        if not known.identifiable
        else bool(
            np.all(holds)
            and np.all(errors[1] <= MEAN + 2 * flat(known.x_mean_error) / flat(known.x_sd))
            and np.all(errors[2] <= SD + 2 * flat(known.x_sd_error) / flat(known.x_sd))
        )
    )
    theta_error, mean_error, sd_error = (float(np.max(each, initial=0.0)) for each in errors)
    return Row(
        problem.name,
        algorithm,
        theta_error,
        mean_error,
        sd_error,
        right,
        claimed,
        evaluations,
        seconds,
        words,
    )


def _errors(
    known: Answer, theta: np.ndarray, mean: np.ndarray, sd: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of theta in standard errors, of means in sds, of sds relative; 0 where nothing is known."""
    with np.errstate(invalid="ignore", divide="ignore"):
        each = (
            np.abs(theta - flat(known.theta)) / flat(known.theta_stderr),
            np.abs(mean - flat(known.x_mean)) / flat(known.x_sd),
            np.abs(sd / flat(known.x_sd) - 1),
        )
    first, second, third = (np.where(np.isfinite(error), error, 0.0) for error in each)
    return first, second, third
