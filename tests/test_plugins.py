"""Commands of other packages, by entry points; and what is said where pipla-lab is missing."""

import importlib
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest
import typer
from typer.testing import CliRunner

import pipla
from pipla._extras import MissingExtraError
from pipla.cli import _plugins
from pipla.cli.app import app

inner = typer.Typer(help="Two commands.")


@inner.command("sing")
def _sing(times: int = 1) -> None:
    print("la " * times)


@inner.command("shout")
def _shout() -> None:
    raise ValueError("too loud\nfor two lines")


def greet(name: str) -> None:
    """Greet somebody."""
    if name == "nobody":
        raise ValueError("nobody is here.")
    print(f"Hello, {name}!")


@pytest.fixture
def installed(monkeypatch):
    """Entry points as if packages had been installed; the library's own name is not replaced."""
    targets = {
        "choir": f"{__name__}:inner",
        "greet": f"{__name__}:greet",
        "broken": "a_package_that_nobody_has:app",
        "demo": f"{__name__}:greet",
    }
    known = EntryPoints(EntryPoint(name, to, _plugins.GROUP) for name, to in targets.items())
    monkeypatch.setattr(_plugins, "entry_points", known.select)
    return known


def call(*words):
    return CliRunner().invoke(app, list(words))


def test_an_entry_point_is_an_application_or_a_function(installed):
    assert call("choir", "sing", "--times", "2").output == "la la \n"
    assert call("greet", "Ada").output == "Hello, Ada!\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("choir", "shout"), "pipla: too loud for two lines\n"),
        (("greet", "nobody"), "pipla: nobody is here.\n"),
    ],
)
def test_their_errors_are_one_line(installed, words, said):
    outcome = call(*words)
    assert outcome.exit_code == 2
    assert outcome.stderr == said


def test_an_entry_point_that_cannot_be_loaded_is_one_line_and_harms_no_other(installed):
    outcome = call("broken", "--any", "thing")
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("pipla: the command 'broken' of a_package_that_nobody_has:app")
    assert len(outcome.stderr.splitlines()) == 1
    listed = call("--help")
    assert listed.exit_code == 0
    assert "Greet somebody." in listed.output


def test_own_commands_are_not_replaced(installed):
    assert "Greet somebody." not in call("demo", "--help").output


def test_an_entry_point_is_loaded_when_it_is_called(installed, monkeypatch):
    loaded = []
    monkeypatch.setattr(_plugins, "_loaded", lambda found: loaded.append(found.name))
    call("demo", "--help")
    assert loaded == []
    call("greet", "Ada")
    assert loaded == ["greet"]


@pytest.mark.parametrize("name", _plugins.LAB)
def test_without_the_lab_its_commands_say_in_one_line_what_to_install(name, monkeypatch):
    monkeypatch.setattr(_plugins, "entry_points", EntryPoints().select)
    for words in ((), ("run", "toy", "--preset", "quick"), ("--help",)):
        outcome = call(name, *words)
        assert outcome.exit_code == 2
        assert len(outcome.stderr.splitlines()) == 1
        assert f"'pipla {name}' needs the package pipla-lab" in outcome.stderr
        assert "pip install pipla-lab (in a checkout: pip install -e lab)" in outcome.stderr
    assert call("dance").exit_code == 2
    assert name not in call("--help").output.split()


def test_without_the_lab_the_zoo_says_what_to_install(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="pipla_lab")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"^pipla\.zoo needs .* pip install pipla-lab"):
        _ = pipla.zoo


def test_importing_pipla_and_its_commands_loads_no_entry_point():
    code = "import sys, pipla, pipla.cli.app; print([m for m in sys.modules if 'pipla_lab' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
