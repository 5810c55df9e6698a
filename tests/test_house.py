"""The package as a whole: layers, file sizes, docstrings, a light import, the demo."""

import ast
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import grimp
import numpy as np
import pytest
from conftest import group_of
from typer.testing import CliRunner

import pipla
from pipla.cli import app as cli
from pipla.cli import demo
from pipla.diagnostics import Finding
from pipla.problems import logistic, toy
from pipla.report.page import Section, Table, Text, write_page

ROOT = Path(__file__).parents[1]
SOURCE = Path(pipla.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path):
    return path.relative_to(SOURCE).as_posix()


# Imports. #


def test_imports_go_one_way():
    # The contracts of `make lint`: [tool.importlinter] in pyproject.toml.
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--no-cache", "--no-logo"]
    linter = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert linter.returncode == 0, linter.stdout + linter.stderr


def test_the_engine_runs_any_algorithm():
    # It imports the abstract class only. So does tuning, except for the curvature, which needs
    # random directions.
    graph = grimp.build_graph("pipla", cache_dir=None)
    modules = graph.find_descendants("pipla.engine") | graph.find_descendants("pipla.tuning")
    modules -= {"pipla.tuning.curvature"}
    offenders = {
        f"{module} imports {used}"
        for module in modules
        for used in graph.find_modules_directly_imported_by(module)
        if used.startswith("pipla.algorithms") and used != "pipla.algorithms.base"
    }
    assert offenders == set()


def names_used(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("algorithms/", {"jit", "filter_jit", "print", "open", "savefig", "warn"}),
        ("prox/", {"jit", "filter_jit", "print", "open", "random", "warn"}),
        ("models/model.py", {"jit", "random", "step_size", "print", "open"}),
        ("problems/", {"Algorithm", "PIPGLA", "MYIPLA", "print"}),
        ("engine/result.py", {"step", "advance", "print"}),
        ("cli/app.py", {"grad", "numpy", "jnp"}),
    ],
)
def test_rooms_leave_alone_what_is_not_theirs(room, forbidden):
    files = [path for path in FILES if name_of(path).startswith(room)]
    files = [path for path in files if "_kernels" not in path.parts]  # they talk to XLA itself
    assert files
    for path in files:
        assert not forbidden & set(names_used(path)), path


# Files, docstrings, names. #


def test_files_are_short():
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {name: number for name, number in lines.items() if number > 400} == {}


@functools.cache
def modules():
    """Every module of the package by name. Importing them takes seconds: not at collection."""
    found = pkgutil.walk_packages(pipla.__path__, "pipla.")
    names = [info.name for info in found if not info.name.endswith("__main__")]
    return {"pipla": pipla} | {name: importlib.import_module(name) for name in names}


def undocumented(module):
    """The public classes, functions and methods of a module that have no docstring."""
    if not module.__doc__:
        yield module.__name__
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value):
            yield f"{module.__name__}.{name}"
        if inspect.isclass(value):
            for member, method in vars(value).items():
                if member.startswith("_") or not inspect.isfunction(method):
                    continue
                if method.__name__ == "<lambda>":  # the default of a field
                    continue
                # The docstring of a method also documents the methods that override it.
                bases = [vars(base)[member] for base in value.__mro__ if member in vars(base)]
                if not any(map(inspect.getdoc, bases)):
                    yield f"{module.__name__}.{name}.{member}"


def test_every_public_name_has_a_docstring():
    offenders = [name for module in modules().values() for name in undocumented(module)]
    for module in modules().values():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            is_alias = getattr(value, "__module__", "").startswith("jaxtyping")
            if not is_alias and not value.__doc__:
                offenders.append(f"{module.__name__}.{name}")
    assert offenders == []


def test_no_public_module_is_shadowed():
    # `import pipla.run` must not give a function: such a module takes another name.
    offenders = []
    for name in modules():
        parent, _, last = name.rpartition(".")
        if parent and getattr(modules()[parent], last) is not sys.modules[name]:
            offenders.append(name)
    assert offenders == []


# A light import. #

#: Imports JAX, then pipla, and prints what the second import changed.
IMPORT = """
import json, os, sys
import jax
packages, variables = {name.partition(".")[0] for name in sys.modules}, dict(os.environ)
import pipla
from jax._src.xla_bridge import backends_are_initialized
print(json.dumps({
    "packages": list({name.partition(".")[0] for name in sys.modules} - packages),
    "variables": list(dict(set(os.environ.items()) ^ set(variables.items()))),
    "started": backends_are_initialized(),
}))
"""


@pytest.fixture(scope="module")
def imported():
    # In a fresh environment: not with the variables that the tests themselves set.
    kept = ("HOME", "PATH", "PYTHONPATH", "SYSTEMROOT")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    command = [sys.executable, "-c", IMPORT]
    return json.loads(
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    )


def test_importing_pipla_imports_nothing_heavy(imported):
    # Not even all core dependencies: SciPy and optax are imported by the code that uses them.
    added = set(imported["packages"]) - sys.stdlib_module_names
    assert added <= {"pipla", "equinox", "jaxtyping", "wadler_lindig", "typing_extensions"}


def test_importing_pipla_does_not_start_jax(imported):
    # The program that imports it may still choose platform, devices and precision.
    assert not imported["started"]


def test_importing_pipla_sets_no_environment_variable(imported):
    assert imported["variables"] == []


# Tests that share programs share a worker. #


@pytest.mark.parametrize(
    ("test", "group"),
    [
        (
            "tests/algorithms/test_contracts.py::test_x[PIPGLA image-compiles_once]",
            "algorithms-PIPGLA image",
        ),
        ("tests/prox/test_contracts.py::test_contract[jit_equals_prox-tv_image]", "prox-tv_image"),
        ("tests/algorithms/test_contracts.py::test_step_n", "tests/algorithms/test_contracts.py"),
        ("tests/test_run.py::test_a[1-b]", "tests/test_run.py"),
        ("tests/test_answers.py::test_a[1]", "tests/test_answers.py::test_a[1]"),
        ("tests/test_docs.py::test_skeletons_of_terms[a]", "skeletons"),
    ],
)
def test_groups_are_files_and_rows(test, group):
    assert group_of(test) == group


# Two commands. #


def test_the_version_is_printed():
    outcome = CliRunner().invoke(cli.app, ["--version"])
    assert outcome.exit_code == 0
    assert outcome.output == f"pipla {pipla.__version__}\n"


def test_without_a_command_there_is_help():
    outcome = CliRunner().invoke(cli.app, [])
    assert "demo" in outcome.output
    assert "Usage" in outcome.output


def test_an_unknown_command_is_an_error():
    outcome = CliRunner().invoke(cli.app, ["dance"])
    assert outcome.exit_code == 2


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "NUM_STEPS", 30)
        patch.setattr(demo, "NUM_PARTICLES", 6)
        patch.setattr(demo, "toy", functools.partial(toy, dimension=5))
        patch.setattr(demo, "logistic", functools.partial(logistic, dimension=5, observations=20))
        outcome = CliRunner().invoke(cli.app, ["demo", "--out", str(folder / "out"), "--seed", "1"])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output, folder / "out"


@pytest.mark.slow
def test_the_demo_prints_a_table_and_where_the_page_is(page):
    output, folder = page
    lines = output.splitlines()
    for column in ("model", "algorithm", "theta", "error", "exact maximiser", "paper", "seconds"):
        assert column in lines[0]
    body = "\n".join(lines)
    for word in ("toy", "logistic", "MYIPLA", "PIPGLA", "fit"):
        assert word in body
    assert str(folder / "report.html") in output


def test_what_the_demo_warns_of_has_the_name_of_its_row():
    row = demo.Row(
        toy(), "PIPGLA", 0.0, 0.1, None, *[np.zeros(1)] * 3, 0.0, (Finding("theta", "theta moves"),)
    )
    assert row.doubts == ["toy, PIPGLA: theta moves."]
    assert "named above" in demo._conclusion(row.doubts)
    assert "can be compared" in demo._conclusion([])


@pytest.mark.slow
def test_the_demo_page_is_self_contained(page):
    _, folder = page
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>")
    sources = re.findall(r"(?:src|href|action|data|poster)\s*=\s*['\"]([^'\"]*)", text)
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"@import|url\(|<link|<iframe|fetch\(|XMLHttpRequest|https?://", text)


@pytest.mark.slow
def test_the_demo_page_has_its_figures_inside(page):
    _, folder = page
    text = (folder / "report.html").read_text(encoding="utf-8")
    figures = sorted(folder.glob("figure-*.png"))
    assert len(figures) == 2
    assert len(re.findall(r"<img alt='[^']+' src='data:image/png;base64,", text)) == 2
    for figure in figures:
        assert figure.read_bytes().startswith(b"\x89PNG")
    assert "pipla demo --seed 1" in text


def test_the_demo_stops_when_asked_to(tmp_path, monkeypatch):
    def interrupted(*args, **options):
        return types.SimpleNamespace(status=pipla.Status.INTERRUPTED)

    monkeypatch.setattr(demo, "run", interrupted)
    outcome = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "out")])
    assert outcome.exit_code == 130
    assert "Stopped" in outcome.output
    assert not list((tmp_path / "out").iterdir())


def test_the_demo_names_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    outcome = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "file")])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("pipla: ")
    assert len(outcome.stderr.splitlines()) == 1


def test_text_from_outside_is_escaped_in_a_page(tmp_path):
    bad = "<script>alert('x')</script>"
    table = Table((bad,), [(bad,), (None,), (0.12345678,)], bad)
    path = write_page(tmp_path / "page.html", bad, bad, [Section(bad, [table, Text(bad, True)])])
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
    assert "0.1235" in text


def test_only_numbers_keep_a_table_wide(tmp_path):
    """Headings and names wrap: nine columns fit a page of 1280 pixels, and numbers stay whole."""
    table = Table(("method", "error, large set"), [("a long name of a row", "3.57 ± 0.36")])
    text = write_page(tmp_path / "page.html", "t", "l", [Section("s", [table])]).read_text("utf-8")
    rules = re.findall(r"([^{}\n]+)\{([^}]*)\}", text)
    whole = [selector for selector, rule in rules if "white-space:nowrap" in rule]
    assert whole == ["td"]
    assert any(s == "td:first-child" and "white-space:normal" in rule for s, rule in rules)
