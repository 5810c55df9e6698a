"""Counts what XLA compiles: "changing a number compiles nothing" is a claim about this list."""

import contextlib
from collections.abc import Iterator

import jax

_compiled: list[str] = []


def _listen(event: str, _seconds: float, **details: object) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled.append(str(details.get("fun_name", "?")))


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that, after the block, names every program compiled in it."""
    before, inside = len(_compiled), []
    yield inside
    inside.extend(_compiled[before:])
