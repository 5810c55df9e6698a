"""The one host loop: piece after piece of any sampler, with callbacks in between.

A sampler is what advances a history: compiled chunks of steps (`compiled`), or the sweeps over the
coefficients of a regression. The loop knows neither. It chooses how long the next piece is, calls
the hooks, and ends in one of the ways that `Status` names.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax

from pipla.engine.hooks import Callback, Hook, View
from pipla.engine.result import Status

#: Seconds a piece should take: short enough for a lively bar and a prompt Ctrl-C.
CHUNK_SECONDS = 0.25
#: A piece takes at least this many times what one of no steps takes: the fixed cost of a piece
#: (fetching the memory of many particles) should not matter.
CHUNK_OVERHEADS = 15


#: The process that imported this file, and the one in which the first run began.
_imported = os.getpid()
_first_run: int | None = None


class History(Protocol):
    """What a sampler has made so far. It is replaced as a whole: Ctrl-C never finds a half."""

    @property
    def step(self) -> int:
        """The steps so far."""

    @property
    def seconds(self) -> float:
        """The wall time of the steps."""

    @property
    def compile_seconds(self) -> float:
        """The wall time of compiling."""

    @property
    def _replace(self) -> Callable[..., Any]:
        """A history that differs in some fields, as named tuples have it."""


H = TypeVar("H", bound=History)


class Started(NamedTuple, Generic[H]):
    """A sampler that is ready to advance.

    Attributes:
        advance: the history with so many steps more, or fewer where a value becomes non-finite.
            It changes nothing of the one that it is given.
        look: called after each piece; it may warn.
        most: the most steps of a piece.
        overhead: the seconds that a piece of no steps takes.
    """

    advance: Callable[[H, int], H]
    look: Callable[[H], None] = lambda history: None
    most: int = sys.maxsize
    overhead: float = 0.0


class Sampler(Protocol[H]):
    """What the driver runs."""

    @property
    def name(self) -> str:
        """A word for the progress bar."""

    @property
    def unit(self) -> str:
        """What is counted: steps, or sweeps."""

    def start(self, history: H) -> Started[H]:
        """Compile what must be compiled."""

    def goal(self, history: H) -> int:
        """The steps that there will be, as far as is known."""

    def ends(self, history: H) -> list[int]:
        """Steps beyond which the next piece must not go."""

    def is_finite(self, history: H) -> bool:
        """Whether all is well, so that another piece can follow."""

    def has_answer(self, history: H) -> bool:
        """Whether a callback may stop here; if not, it stops as soon as there is an answer."""

    def view(self, history: H) -> View:
        """What callbacks see."""


class Outcome(NamedTuple, Generic[H]):
    """How a run ended."""

    history: H
    status: Status
    message: str


def drive(
    sampler: Sampler[H],
    history: H,
    callbacks: Sequence[Callback],
    chunk_size: int | None = None,
) -> Outcome[H]:
    """Piece after piece until the goal, an interruption or a non-finite value."""
    unit, goal, reason = sampler.unit, sampler.goal(history), None
    hooks = [callback for callback in callbacks if isinstance(callback, Hook)]
    try:
        for hook in hooks:
            hook.begin(sampler.name, goal)
        began = time.perf_counter()
        started = sampler.start(history)
        spent = time.perf_counter() - began
        history = history._replace(compile_seconds=history.compile_seconds + spent)
        enough = max(CHUNK_SECONDS, CHUNK_OVERHEADS * started.overhead)
        # A step may take seconds, and somebody waits for the first sign of life.
        size, most = 1, started.most
        if chunk_size is not None:
            most = min(most, chunk_size)
            size = min(16, most)
        while history.step < goal and sampler.is_finite(history):
            if reason is not None and sampler.has_answer(history):
                break
            due = (hook.next_step(history.step) for hook in hooks)
            ends = [goal, history.step + size, *sampler.ends(history), *filter(None, due)]
            count = max(1, min(ends) - history.step)
            began = time.perf_counter()
            history = started.advance(history, count)
            took = time.perf_counter() - began
            history = history._replace(seconds=history.seconds + took)
            # Grow from the last piece of `count` steps, at most fourfold at a time.
            size = max(1, min(int(count * enough / max(took, 1e-6)), 4 * size, most))
            started.look(history)
            goal = sampler.goal(history)
            reason = _reason_to_stop(callbacks, sampler, history) or reason
    except KeyboardInterrupt:
        message = f"interrupted after {history.step} of {goal} {unit}; resume() continues there"
        return Outcome(history, Status.INTERRUPTED, message)
    finally:
        for hook in hooks:
            hook.end()
    if not sampler.is_finite(history):
        return Outcome(history, Status.NONFINITE, "")
    if reason is not None:
        message = f"stopped by a callback after {history.step} of {goal} {unit}: {reason}"
        return Outcome(history, Status.STOPPED, message)
    return Outcome(history, Status.COMPLETED, f"completed {goal} {unit}")


def _reason_to_stop(callbacks: Sequence[Callback], sampler: Sampler[H], history: H) -> str | None:
    """The reason that a callback gave, if one did."""
    if not callbacks:
        return None
    view = sampler.view(history)
    reasons = [(callback, callback(view)) for callback in callbacks]
    for callback, answer in reasons:
        if answer:
            name = getattr(callback, "__name__", type(callback).__name__)
            return answer if isinstance(answer, str) else name
    return None


# JAX works with threads, and `os.fork` copies the memory of a process but not its threads: in the
# child the first computation waits for ever. (`multiprocessing` forks by default on Linux before
# Python 3.14.) #


def note_first_run() -> None:
    """Remember the process in which the first run began. Called when a run begins."""
    global _first_run
    if _first_run is None:
        _first_run = os.getpid()


def check_surroundings() -> None:
    """Raise an error where no run can begin: after a fork, or while JAX traces a program."""
    refuse_after_fork()
    if isinstance(jax.numpy.zeros(()), jax.core.Tracer):
        raise TypeError(
            "a run is a loop of compiled programs on the host, and cannot itself be traced: call "
            "pipla outside of jax.jit, jax.eval_shape, jax.lax.scan and their like. "
            "pipla.sweep runs many settings in one program."
        )


def refuse_after_fork() -> None:
    """Raise an error in a process that was forked from one that had used JAX."""
    here = os.getpid()
    if _first_run == here or (_first_run is None and _imported == here):
        return
    if _first_run is not None or _jax_was_inherited():
        raise RuntimeError(
            "this process was forked from one that had already used JAX, and JAX would hang in "
            "it. Start processes with multiprocessing.get_context('spawn'), or fork before the "
            "first use of JAX. Threads work, and pipla.sweep runs many settings in one process."
        )


def _jax_was_inherited() -> bool:
    """Whether JAX has started, but none of its threads are in this (forked) process."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: False)()
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:  # not Linux: better a run that may hang than a refusal without reason
        return False
    return started and threads <= threading.active_count()
