"""The laboratory as a whole: public names of pipla only, one version, docstrings, short files."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pipla
import pipla_lab
from pipla.cli.app import app

LAB = Path(__file__).parents[1]
SOURCE = LAB / "src" / "pipla_lab"
FILES = sorted(path for path in LAB.rglob("*.py") if "tests" not in path.parts)


def name_of(path):
    return path.relative_to(LAB).as_posix()


#: Public in spite of the underscore: the methods of named tuples.
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def private_names(path):
    """Modules and names of pipla with a leading underscore that a file imports or looks up."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = set()  # what the file calls pipla, its modules and its names
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "pipla":
            names = [(f"{node.module}.{alias.name}", alias) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [(alias.name, alias) for alias in node.names]
            names = [(name, alias) for name, alias in names if name.split(".")[0] == "pipla"]
        else:
            continue
        imported |= {alias.asname or alias.name.split(".")[0] for _, alias in names}
        yield from (name for name, _ in names if any(map(is_private, name.split("."))))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            name = ast.unparse(node)
            if name.split(".")[0] in imported:
                yield name


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_public_names_of_pipla_are_used(path):
    assert list(private_names(path)) == []


def test_private_names_are_seen(tmp_path):
    """The test above has teeth."""
    (tmp_path / "a.py").write_text(
        "from pipla import _checks, prox as terms, __version__\n"
        "from pipla.prox._roots import strength\n"
        "import pipla._trees\n"
        "terms._kernels.tv, pipla.prox._arguments, terms.Solution._replace, other._x\n"
    )
    assert sorted(private_names(tmp_path / "a.py")) == [
        "pipla._checks",
        "pipla._trees",
        "pipla.prox._arguments",
        "pipla.prox._roots.strength",
        "terms._kernels",
    ]


def test_imports_go_one_way():
    # The contracts of `make lint`.
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--config", str(LAB / ".importlinter")]
    linter = subprocess.run(
        [*command, "--no-cache", "--no-logo"], cwd=LAB.parent, capture_output=True, text=True
    )
    assert linter.returncode == 0, linter.stdout + linter.stderr


def test_the_library_and_its_laboratory_have_one_version():
    assert pipla_lab.__version__ == pipla.__version__


def test_files_are_short():
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {name: number for name, number in lines.items() if number > 400} == {}


def test_every_public_name_has_a_docstring():
    offenders = []
    for info in pkgutil.walk_packages(pipla_lab.__path__, "pipla_lab."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            own = getattr(value, "__module__", None) == info.name and not name.startswith("_")
            if own and (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__:
                offenders.append(f"{info.name}.{name}")
        if not module.__doc__:
            offenders.append(info.name)
    assert offenders == []


def test_its_commands_are_commands_of_pipla():
    names = {found.name for found in entry_points(group="pipla.commands")}
    assert {"experiment", "report", "theory", "zoo"} <= names
    listed = CliRunner().invoke(app, ["--help"])
    assert listed.exit_code == 0
    for name in names:
        assert name in listed.output


def test_the_zoo_is_found_in_pipla():
    assert pipla.zoo.get("lasso").name == "lasso"
