"""Callbacks between compiled chunks: progress, early stopping, logs, evaluations.

A callback is any function of a `View` of the run. It may stop the run by returning `True` or the
reason in words. A `Hook` can also say at which steps it must be called.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import jax
import numpy as np
from jaxtyping import PyTree

from pipla import _checks, _files, _trees
from pipla._extras import extra
from pipla.diagnostics import monte_carlo_error, still_moving
from pipla.engine.chunk import by_size


class View:
    """What a callback sees of a run, a sweep or a regression between two pieces of it.

    Attributes:
        step, num_steps, burn_in: the steps done, wanted, and left out of averages.
        theta: after the last step, with the leaves that are not learned. In a sweep, theta,
            particles and moments have two leading axes: settings, replicates.
        particles: after the last step.
        x_mean, x_variance: running moments so far, or `None`.
        theta_trace: theta after every step so far; in a sweep, the steps come first. `None` for
            large leaves, as in `Result`, and for those that are not learned.
        grid: the shape of a sweep, settings and replicates; `()` for a run.
        prox_gap: the largest duality gap so far.
        seconds: wall time of the steps.
        info: gradients at the present state, as the next step would report them; computed when
            asked for. Only in runs.

    Of a regression, theta holds the learned numbers by the names of `theta_`, those of the first
    chain, and particles the coefficients of the standardised features, chain by chain. Steps are
    sweeps.
    """

    theta: PyTree
    particles: PyTree
    theta_trace: PyTree
    x_mean: PyTree = None
    x_variance: PyTree = None
    info: Any = None

    def __init__(
        self,
        step: int,
        num_steps: int,
        burn_in: int,
        seconds: float,
        prox_gap: float = 0.0,
        grid: tuple[int, ...] = (),
    ) -> None:
        self.step, self.num_steps, self.burn_in, self.seconds = step, num_steps, burn_in, seconds
        self.prox_gap, self.grid = prox_gap, grid


#: A callback: `True` or a reason stops the run.
Callback = Callable[[View], bool | str | None]


class Hook:
    """A callback that says when it must be called; subclasses write `__call__`."""

    def begin(self, name: str, num_steps: int) -> None:
        """Before the first chunk is compiled."""

    def next_step(self, step: int) -> int | None:
        """The next step, after `step`, at which a chunk must end; `None` where any will do."""
        return None

    def __call__(self, view: View) -> bool | str | None:
        """Between two chunks."""
        raise NotImplementedError

    def end(self) -> None:
        """When the run is over, in whatever way."""


class Every(Hook):
    """A hook that is called after every `every` steps, and after the last one."""

    def __init__(self, every: int) -> None:
        self.every = _checks.integer("every", every, least=1)

    def next_step(self, step: int) -> int:
        return step - step % self.every + self.every

    def is_due(self, view: View) -> bool:
        """Whether this is one of its steps: chunks may end at others, too."""
        return view.step % self.every == 0 or view.step == view.num_steps


class Evaluation(NamedTuple):
    """A value, and the step after which it was taken."""

    step: int
    value: Any


class Evaluate(Every):
    """Evaluate a function of theta and the particles every so often: a test error, a PSNR.

    Arguments:
        function: `(theta, particles) -> anything`; it is called with NumPy arrays.
        every: the number of steps between two evaluations.

    Afterwards `history` holds one `Evaluation(step, value)` for each of them.

    Example:
        >>> import jax, pipla
        >>> problem = pipla.problems.toy(dimension=3)
        >>> width = pipla.hooks.Evaluate(lambda theta, x: float(x.std()), every=20)
        >>> result = pipla.run(problem.model, pipla.PIPGLA(0.1), theta=problem.theta,
        ...                    particles=problem.particles(jax.random.key(1), 4), num_steps=60,
        ...                    key=jax.random.key(0), callbacks=[width])
        >>> [step for step, value in width.history]
        [20, 40, 60]
    """

    def __init__(self, function: Callable[[PyTree, PyTree], Any], every: int) -> None:
        super().__init__(every)
        if not callable(function):
            raise TypeError(f"function must be callable, got {type(function).__name__}.")
        self.function = function
        self.history: list[Evaluation] = []

    def __call__(self, view: View) -> None:
        if self.is_due(view):
            value = self.function(view.theta, view.particles)
            self.history.append(Evaluation(view.step, value))


class EarlyStop(Every):
    """Stop once theta has settled and its Monte-Carlo error is small.

    Looked at are the last half of the steps so far. It judges the noise of the average, not its
    bias, and only leaves of theta that have a trace.

    Arguments:
        tolerance: the largest Monte-Carlo standard error of any number in theta.
        every: the number of steps between two looks.
        least: the number of steps before the first look that may stop the run; it never stops
            before burn-in is over.
    """

    def __init__(self, tolerance: float, every: int = 200, least: int = 400) -> None:
        super().__init__(every)
        self.tolerance = _checks.real("tolerance", tolerance)
        _checks.positive("tolerance", self.tolerance)
        self.least = _checks.integer("least", least, least=1)

    def __call__(self, view: View) -> str | None:
        if not self.is_due(view) or view.step < max(self.least, view.burn_in + 100):
            return None
        tail = [trace[len(trace) // 2 :] for trace in jax.tree.leaves(view.theta_trace)]
        if not tail:
            return None
        error = max(float(np.max(monte_carlo_error(leaf))) for leaf in tail)
        if not error <= self.tolerance or any(map(still_moving, tail)):
            return None
        return f"theta has settled, with a Monte-Carlo error of {error:.2g}"


class Log(Every):
    """Write step, seconds, theta and the prox gap to a file, one line per look.

    Of theta, those leaves are written that have a trace.

    Arguments:
        path: ends in `.csv`, or in `.jsonl` for one JSON object per line. An existing file is
            continued.
        every: the number of steps between two lines.
    """

    def __init__(self, path: str | Path, every: int = 100) -> None:
        super().__init__(every)
        self.path = _files.checked_path("path", path)
        _checks.choice("the ending of path", self.path.suffix, (".csv", ".jsonl"))
        self._file: TextIO | None = None

    def begin(self, name: str, num_steps: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", newline="", encoding="utf-8")

    def __call__(self, view: View) -> None:
        if self._file is None or not self.is_due(view):
            return
        row = {"step": view.step, "seconds": round(view.seconds, 6), **_named(view)}
        row["prox_gap"] = view.prox_gap
        if self.path.suffix == ".jsonl":
            self._file.write(json.dumps(row) + "\n")
        else:
            writer = csv.DictWriter(self._file, row.keys())
            if self._file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
        self._file.flush()  # a killed run keeps its log

    def end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Progress(Hook):
    """A progress bar with theta, steps and the time left, on standard error."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def begin(self, name: str, num_steps: int) -> None:
        with extra("cli", "a progress bar"):
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[theta]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(name, total=num_steps, theta="compiling")
        self._bar.start()

    def __call__(self, view: View) -> None:
        shown = f"theta {_trees.brief(view.theta, 3)}"
        done = {"completed": view.step, "total": view.num_steps}
        self._bar.update(self._task, theta=shown, **done)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _named(view: View) -> dict[str, Any]:
    """Theta's numbers by name: `theta`, `theta['alpha']`, `theta[0]`; arrays as lists."""
    learned, _ = _trees.split(view.theta)
    leaves = jax.tree_util.tree_leaves_with_path(by_size(learned, len(view.grid))[0])
    return {
        f"theta{jax.tree_util.keystr(path)}": np.asarray(leaf).tolist() for path, leaf in leaves
    }
