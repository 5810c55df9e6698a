"""Print how much of the package a reader has to open: names, layers, files and frames.

    python benchmarks/walk.py

Runs a small model and one proximal map under a profiler, each in a process of its own, so that no
cache hides a function. Only functions whose source is in `src/pipla` count; module bodies and
comprehensions do not. The limits are those of the project's design; a broken one is exit status 1.
"""

import ast
import functools
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "pipla"
sys.path.insert(0, str(ROOT / "src"))  # this tree, whichever pipla is installed

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import pipla  # noqa: E402
from pipla.algorithms import ForwardBackward  # noqa: E402

NOT_FUNCTIONS = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


class Call(NamedTuple):
    """A function of pipla: its file, relative to the package, and its name."""

    file: str
    name: str


@functools.cache
def call_of(code: CodeType) -> Call | None:
    path = Path(code.co_filename)
    if code.co_name in NOT_FUNCTIONS or not path.is_relative_to(SOURCE):
        return None
    return Call(path.relative_to(SOURCE).as_posix(), code.co_qualname)


class Walk:
    """Records the pipla functions called inside a `with` block, and one chain of callers."""

    def __init__(self, until: CodeType | None = None) -> None:
        self.until, self.calls, self.depth, self.chain = until, set(), 0, []

    def __enter__(self) -> "Walk":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType | None, event: str, _: Any) -> None:
        if event != "call" or call_of(frame.f_code) is None:
            return
        self.calls.add(call_of(frame.f_code))
        reached = frame.f_code is self.until and not self.chain
        chain = []
        while frame is not None:
            chain.append(call_of(frame.f_code))
            frame = frame.f_back
        chain = [call for call in reversed(chain) if call]
        self.depth = max(self.depth, len(chain))
        if reached:
            self.chain = chain

    def report(self) -> dict[str, Any]:
        """Return the figures as plain lists and numbers."""
        return {
            "files": sorted({call.file for call in self.calls}),
            "functions": len(self.calls),
            "depth": self.depth,
            "chain": self.chain,
        }


def smooth(theta: Any, x: Any, data: Any) -> Any:
    return jnp.sum((x - data) ** 2) / 2


def walk_run() -> Walk:
    """A plain run: the algorithm chooses its own numbers."""
    particles = jax.random.normal(jax.random.key(1), (4, 3))
    model = pipla.Model(smooth, pipla.prox.LaplaceLocation(), data=jnp.arange(3.0))
    with Walk(until=ForwardBackward.move.__code__) as walk:
        pipla.run(
            model,
            pipla.PIPGLA(),
            theta=jnp.zeros(()),
            particles=particles,
            num_steps=20,
            key=jax.random.key(0),
            progress=False,
        )
    return walk


def walk_prox() -> Walk:
    """One call of one prox."""
    term, x = pipla.prox.LaplaceLocation(), jnp.arange(3.0)
    with Walk() as walk:
        term.prox(jnp.zeros(()), x, 0.1, 0.1)
    return walk


def alone(name: str) -> dict[str, Any]:
    """The report of one of the two walks, in a fresh process."""
    command = [sys.executable, __file__, name]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(output)


def show(label: str, number: int, limit: int | None = None) -> bool:
    """Print a figure beside its limit, and return whether it is kept."""
    kept = limit is None or number <= limit
    bound = "" if limit is None else f"  (limit {limit}{'' if kept else ': BROKEN'})"
    print(f"{label:<58}{number:>5}{bound}")
    return kept


#: The rooms of terms, likelihoods and operators, which may ask for their classes; other code asks
#: for abilities. The experiments are not part of the library.
ROOMS = ("prox", "models", "operators", "experiments")


def type_tests() -> list[str]:
    """The `isinstance` tests for a class of terms, likelihoods or operators outside of its room."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
    bases: dict[str, set[str]] = {}
    for path, tree in trees.items():
        if path.relative_to(SOURCE).parts[0] in ROOMS[:3]:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = {name_of(base) for base in node.bases}
    known = {"Term", "Likelihood", "Operator", "Bijector"}
    while more := {name for name, of in bases.items() if of & known} - known:
        known |= more
    found = []
    for path, tree in trees.items():
        if path.relative_to(SOURCE).parts[0] in ROOMS:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and name_of(node.func) == "isinstance":
                asked = {name_of(each) for each in ast.walk(node.args[1])}
                if asked & known:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    return sorted(found)


def name_of(node: ast.AST) -> str:
    """The last part of a name in the source, without the module and type parameters."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return getattr(node, "id", getattr(node, "attr", ""))


def main() -> int:
    entries = [path for path in SOURCE.iterdir() if path.name not in ("__pycache__", "py.typed")]
    folders = sorted(path.name for path in entries if path.is_dir())
    modules = sorted(path.stem for path in entries if path.suffix == ".py")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")

    run = alone("run")
    prox = alone("prox")
    chain = run["chain"]
    start = max(index for index, (_, name) in enumerate(chain) if name == "run")
    chain = chain[start:]
    tests = type_tests()
    kept = [
        show("names at the top of the package: folders", len(folders)),
        show("names at the top of the package: modules", len(modules)),
        show("names exported by pipla", len(pipla.__all__)),
        show("layers of import-linter", len(layers), 10),
        show("pipla.run(model, PIPGLA(), ...): files", len(run["files"]), 20),
        show("pipla.run(model, PIPGLA(), ...): functions", run["functions"]),
        show("pipla.run(model, PIPGLA(), ...): deepest stack of frames", run["depth"]),
        show("frames after run to ForwardBackward.move", len(chain) - 1, 6),
        show("LaplaceLocation().prox: files", len(prox["files"]), 4),
        show("isinstance tests on terms, likelihoods, operators", len(tests), 0),
    ]
    print(*tests, sep="\n")
    print("\nfolders:", *folders)
    print("modules:", *modules)
    print("\nfrom run to ForwardBackward.move:")
    for number, (file, name) in enumerate(chain):
        print(f"  {number}  {file}: {name}")
    print("\nfiles of the run:", *run["files"], sep="\n  ")
    print("\nfiles of the prox:", *prox["files"], sep="\n  ")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    if sys.argv[1:]:
        walks = {"run": walk_run, "prox": walk_prox}
        print(json.dumps(walks[sys.argv[1]]().report()))
    else:
        sys.exit(main())
