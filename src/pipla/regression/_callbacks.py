"""The callbacks of scikit-learn (1.9 and later), told of sweeps by a hook of the driver."""

from __future__ import annotations

from typing import Any

from pipla.engine.hooks import Hook, View
from pipla.regression._precision import MANY


class _NoCallbacks:
    """The place of scikit-learn's mixin where there is none."""


def _callback_support() -> tuple[Any, Any]:
    """scikit-learn's mixin and decorator for callbacks; before 1.9 they do nothing."""
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:
        return _NoCallbacks, lambda method: method
    return CallbackSupportMixin, with_callbacks


SklearnCallbacks: Any
SklearnCallbacks, with_callbacks = _callback_support()


class _Tell(Hook):
    """Tells the callbacks of scikit-learn after each block in which the prior is learned, or round.

    A callback of theirs cannot stop a fit.
    """

    def __init__(self, estimator: Any, context: Any) -> None:
        self._estimator, self._context = estimator, context

    def begin(self, name: str, num_steps: int) -> None:
        self._context.call_on_fit_task_begin(estimator=self._estimator)

    def __call__(self, view: View) -> None:
        if getattr(view, "at_end", False):
            block = self._context.subcontext(task_name="block of sweeps")
            block.call_on_fit_task_begin(estimator=self._estimator)
            block.call_on_fit_task_end(estimator=self._estimator)

    def end(self) -> None:
        self._context.call_on_fit_task_end(estimator=self._estimator)


def told(estimator: Any) -> list[Hook]:
    """A hook that tells the callbacks of an estimator, where it has any."""
    if "_skl_callbacks" not in vars(estimator):
        return []
    from pipla.regression._sweeps import LEARNING  # which needs numba

    return [_Tell(estimator, estimator._init_callback_context(max_subtasks=len(LEARNING) + MANY))]
