"""Odd calls of every public function: each returns, or is refused by a sentence of our own.

    python tests/attack/odd_calls.py --count 10000 [--x64] [--seed 0] [--only Model]

One call is a valid call with one or two arguments replaced by odd values. It is *sound* if it
returns, or if pipla itself raises a ValueError, TypeError, OSError or an error class of its own:
the innermost frame of the traceback must be a `raise` of ours. Everything else (an error of
JAX, NumPy or equinox, a crash, more than a minute) is unsound. Calls depend only on the seed and
their number, and run in a process of their own, so that a crash costs one call.
"""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(str(ROOT / folder) + os.sep for folder in ("src/pipla", "lab/src/pipla_lab"))
SCIKIT_LEARN = os.path.join("sklearn", "utils", "")
#: A call that uses more of the CPU than this hangs; so does one that waits ten times as long. (The
#: clock on the wall also counts what other programs do.)
SECONDS = 60


class Verdict(NamedTuple):
    """What one call did: `returned`, `refused`, `raw`, `hang` or `crash`.

    `equinox`: refused by equinox, before any line of pipla ran.
    """

    number: int
    target: str
    call: str
    outcome: str
    detail: str = ""


# Odd values. #


def _odd_values() -> dict[str, Callable[[Any], Any]]:
    """Odd values by name; each is made from the valid value that it replaces."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pipla

    def array(valid: Any, dtype: Any = None) -> Any:
        """The valid value as a NumPy array where it is one, and a vector otherwise."""
        try:
            values = np.asarray(valid)
        except Exception:
            values = np.asarray(None)
        if values.dtype.kind not in "fiub":
            values = np.array([1.0, 2.0, 3.0])
        return values if dtype is None else values.astype(dtype)

    def read_only(valid: Any) -> Any:
        values = array(valid).copy()
        values.flags.writeable = False
        return values

    def with_nan(valid: Any) -> Any:
        values = array(valid, float).copy()
        values.flat[:1] = np.nan
        return values

    constants: dict[str, Any] = {
        "None": None,
        "True": True,
        "0": 0,
        "1": 1,
        "-1": -1,
        "7": 7,
        "2**31": 2**31,
        "2**63": 2**63,
        "10**23": 10**23,
        "10**400": 10**400,
        "0.0": 0.0,
        "-0.5": -0.5,
        "0.5": 0.5,
        "1e-320": 1e-320,
        "1e300": 1e300,
        "nan": float("nan"),
        "inf": float("inf"),
        "1j": 1j,
        "''": "",
        "'0.5'": "0.5",
        "'a'": "a",
        "b'a'": b"a",
        "()": (),
        "[]": [],
        "{}": {},
        "[1.0, 'a']": [1.0, "a"],
        "[[1.0], [1.0, 2.0]]": [[1.0], [1.0, 2.0]],
        "(0, 0)": (0, 0),
        "(-5, 9)": (-5, 9),
        "{1: .., 'b': ..}": {1: 1.0, "b": 2.0},
        "{'a': 1.0}": {"a": 1.0},
        "{1, 2}": {1, 2},
        "object()": object(),
        "print": print,
        "lambda": lambda *_: None,
        "int": int,
        "L1 (class)": pipla.prox.L1,
        "Model (class)": pipla.Model,
        "module": np,
        "Path": Path("nothing"),
        "ellipsis": ...,
        "slice": slice(None),
        "datetime64": np.datetime64("2026-01-01"),
        "np.float64": np.float64(0.5),
        "np.int64": np.int64(3),
        "np.bool_": np.bool_(True),
        "key": jax.random.key(0),
        "shape struct": jax.ShapeDtypeStruct((3,), jnp.float32),
        "empty (0,)": np.zeros(0),
        "empty (0, 3)": np.zeros((0, 3)),
        "zeros(7)": np.zeros(7),
        "ones (2, 3, 4)": np.ones((2, 3, 4)),
        "objects": np.array([object(), None, 1.0], dtype=object),
        "text array": np.array(["a", "b"]),
        "structured": np.zeros(3, dtype=[("a", float)]),
        "huge view": np.broadcast_to(np.float64(1.0), (2**40,)),
        "huge matrix": np.broadcast_to(np.float64(1.0), (2**21, 2**21)),
        "one of each": {"a": np.ones(2), "b": None, "c": "text"},
    }
    made: dict[str, Callable[[Any], Any]] = {
        name: functools.partial(lambda value, _: value, value) for name, value in constants.items()
    }
    made |= {
        "complex array": lambda valid: array(valid, complex),
        "bool array": lambda valid: array(valid, bool),
        "int array": lambda valid: array(valid, int),
        "object array": lambda valid: array(valid, object),
        "float16": lambda valid: jnp.asarray(array(valid), jnp.float16),
        "bfloat16": lambda valid: jnp.asarray(array(valid), jnp.bfloat16),
        "float8": lambda valid: jnp.asarray(array(valid), jnp.float8_e4m3fn),
        "float32": lambda valid: np.asarray(array(valid), np.float32),
        "float64": lambda valid: np.asarray(array(valid), np.float64),
        "longdouble": lambda valid: array(valid, np.longdouble),
        "big-endian": lambda valid: array(valid, ">f8"),
        "masked": lambda valid: np.ma.masked_greater(array(valid, float), 0.5),
        "read-only": read_only,
        "with NaN": with_nan,
        "with inf": lambda valid: np.where(np.isnan(with_nan(valid)), np.inf, array(valid, float)),
        "more axes": lambda valid: array(valid)[None],
        "fewer axes": lambda valid: np.resize(array(valid), ()),
        "flat": lambda valid: array(valid).reshape(-1),
        "two of it": lambda valid: (valid, valid),
        "list of it": lambda valid: [valid],
        "dict of it": lambda valid: {"a": valid},
        "class of it": type,
        "tracer": lambda valid: _TRACER,
    }
    return made


_TRACER = object()
_OUTSIDE = "outside pipla"


def _draw(number: int, seed: int, targets: list[Any], odd: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Call `number`: its target, the odd arguments by name, and all arguments."""
    rng = random.Random(f"{seed}/{number}")
    target = rng.choices(targets, [t.weight for t in targets])[0]
    count = 1 if rng.random() < 0.85 else 2
    chosen = rng.sample(list(target.valid), min(count, len(target.valid)))
    odd_names = {name: rng.choice(list(odd)) for name in chosen}
    arguments = dict(target.valid)
    for name, odd_name in odd_names.items():
        arguments[name] = odd[odd_name](arguments[name])
    return target, odd_names, arguments


# One call. #


@functools.cache
def _raise_lines(path: str) -> frozenset[int]:
    """The lines of a file that belong to a `raise` statement."""
    tree = ast.parse(Path(path).read_text())
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


def _is_ours(error: BaseException) -> bool:
    """Whether pipla raised the error, by a `raise` of its own, with a sentence.

    Estimators leave the checks of X, y, weights and seeds to scikit-learn: what it raises (also
    NumPy's words in it) is what its users know.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None and SCIKIT_LEARN not in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    path = trace.tb_frame.f_code.co_filename
    if SCIKIT_LEARN in path:
        return True
    kinds = (ValueError, TypeError, OSError, ImportError)
    ours = isinstance(error, kinds) or type(error).__module__.startswith("pipla")
    raised = path.startswith(PACKAGES) and trace.tb_lineno in _raise_lines(path)
    return ours and raised and len(str(error).split()) >= 3


def _where(error: BaseException) -> str:
    """The last frame in pipla and the last frame of all."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        path, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        frames.append((path, line))
        trace = trace.tb_next
    own = [
        f"{os.path.relpath(path, ROOT)}:{line}"
        for path, line in frames
        if path.startswith(PACKAGES)
    ]
    return own[-1] if own else _OUTSIDE


def _perform(number: int, target: Any, odd: dict[str, str], arguments: dict[str, Any]) -> Verdict:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    described = ", ".join(f"{name}=<{value}>" for name, value in odd.items())
    verdict = functools.partial(
        Verdict, number, target.row or target.name, f"{target.name}({described})"
    )

    def call(traced: Any) -> None:
        known = {k: traced if v is _TRACER else v for k, v in arguments.items()}
        target.call(**known)

    def too_long(*_: Any) -> None:
        raise _Hang

    signal.signal(signal.SIGPROF, too_long)
    # Again and again: an exception is lost in a callback from C, such as numba's compiler has.
    signal.setitimer(signal.ITIMER_PROF, SECONDS, 1)
    try:
        if any(value is _TRACER for value in arguments.values()):
            jax.eval_shape(lambda traced: call(traced), jnp.ones(3))
        else:
            call(None)
    except _Hang:
        return verdict("hang")
    except Exception as error:
        if _is_ours(error):
            return verdict("refused")
        if _where(error) == _OUTSIDE and isinstance(target.call, type(eqx.Module)):
            # equinox flattens the arguments of a module before any code of pipla runs, and fails
            # for a dict whose keys cannot be sorted.
            return verdict("equinox", type(error).__name__)
        first = (str(error).strip().splitlines() or [""])[0][:120]
        return verdict("raw", f"{type(error).__name__}: {first} [{_where(error)}]")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return verdict("returned")


class _Hang(BaseException):
    """Raised by the timer; not an `Exception`, so that no code of the library catches it."""


# Many calls. #


def perform(numbers: Any, seed: int, only: str = "") -> Any:
    """For each call a function that makes it in this process, its target and its odd values."""
    from odd_targets import targets

    rows = [target for target in targets() if re.search(only, target.row or target.name)]
    odd = _odd_values()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            target, names, arguments = _draw(number, seed, rows, odd)
            yield functools.partial(_perform, number, target, names, arguments), (target, names)


def _work(first: int, last: int, seed: int, only: str, path: Path) -> None:
    """Write one line before each call and one after it, for the process that watches."""
    with path.open("a") as file:
        for run, (target, names) in perform(range(first, last), seed, only):
            described = f"{target.name}({names})"
            print(
                json.dumps(["start", target.row or target.name, described]), file=file, flush=True
            )
            print(json.dumps(run()), file=file, flush=True)


def attack(count: int, seed: int, x64: bool, only: str = "") -> list[Verdict]:
    """All calls, in processes that are started again after a crash or a hang."""
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(verdicts) < count:
            verdicts += _one_process(len(verdicts), count, seed, x64, only, Path(folder))
            print(f"{len(verdicts)} of {count} calls", file=sys.stderr, flush=True)
    return verdicts


#: Calls per process: programs that were compiled are kept, and memory grows.
BATCH = 1500


def _one_process(
    first: int, count: int, seed: int, x64: bool, only: str, folder: Path
) -> list[Verdict]:
    path = folder / f"{first}.jsonl"
    path.touch()
    last = min(first + BATCH, count)
    command = [sys.executable, str(Path(__file__).resolve()), "--work", str(path)]
    command += ["--first", str(first), "--count", str(last), "--seed", str(seed), "--only", only]
    environment = os.environ | {
        "JAX_ENABLE_X64": str(int(x64)),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "lab" / "src")]),
    }
    with (folder / "output").open("a") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
        )  # fmt: skip
        size, since = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            if path.stat().st_size > size:
                size, since = path.stat().st_size, time.monotonic()
            elif time.monotonic() - since > 10 * SECONDS:  # it waits, or the timer is not heard
                process.kill()
                process.wait()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    done = [Verdict(*line) for line in lines if line[0] != "start"]
    if first + len(done) < last:
        if not lines:
            raise RuntimeError(f"no call was made: {(folder / 'output').read_text()[-2000:]}")
        outcome = "hang" if process.returncode == -signal.SIGKILL else "crash"
        detail = f"exit code {process.returncode}"
        done.append(Verdict(first + len(done), lines[-1][1], lines[-1][2], outcome, detail))
    return done


def table(verdicts: list[Verdict]) -> str:
    """One row per callable, with the first example of each unsound one."""
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    examples: dict[str, Verdict] = {}
    for verdict in verdicts:
        rows[verdict.target][verdict.outcome] += 1
        if verdict.outcome in ("raw", "hang", "crash"):
            examples.setdefault(verdict.target, verdict)
    kinds = ("returned", "refused", "equinox", "raw", "hang", "crash")
    lines = [f"{'callable':34} {'calls':>6}" + "".join(f"{kind:>9}" for kind in kinds)]
    for name in sorted(rows, key=lambda name: (-rows[name]["raw"], name)):
        numbers = "".join(f"{rows[name][kind]:>9}" for kind in kinds)
        lines.append(f"{name:34} {rows[name].total():>6}{numbers}")
        if name in examples:
            lines.append(f"    {examples[name].call} {examples[name].detail}")
    total: collections.Counter[str] = sum(rows.values(), collections.Counter())
    lines.append(f"{'all':34} {total.total():>6}" + "".join(f"{total[kind]:>9}" for kind in kinds))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--x64", action="store_true")
    parser.add_argument("--only", default="", help="a regular expression for rows of the table")
    parser.add_argument("--raw", type=Path, help="write every unsound call to this file")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        _work(options.first, options.count, options.seed, options.only, options.work)
        return 0
    verdicts = attack(options.count, options.seed, options.x64, options.only)
    print(table(verdicts))
    unsound = [v for v in verdicts if v.outcome in ("raw", "hang", "crash")]
    if options.raw is not None:
        options.raw.write_text("".join(f"{v.number} {v.call} {v.detail}\n" for v in unsound))
    return 1 if unsound else 0


if __name__ == "__main__":
    sys.exit(main())
