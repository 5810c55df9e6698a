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


def private_names(path):
    """Modules and names of pipla with a leading underscore that a file imports or looks up."""
    own_names = {"pipla"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found = []
        if isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found = [ast.unparse(node)]
        for name in found:
            first, *parts = name.split(".")
            dunder = parts and parts[-1].startswith("__")
            if first in own_names and not dunder and any(part.startswith("_") for part in parts):
                yield f"line {node.lineno}: {name}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_public_names_of_pipla_are_used(path):
    assert list(private_names(path)) == []


def test_private_names_are_seen(tmp_path):
    """The test above has teeth."""
    (tmp_path / "a.py").write_text(
        "from pipla import _checks\nfrom pipla.prox._roots import strength\n"
        "import pipla._trees\npipla.prox._kernels.tv\nfrom pipla import prox, __version__\n"
    )
    assert len(list(private_names(tmp_path / "a.py"))) == 4


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
