"""The house: imports go one way, rooms keep to their idea, `import pipla` is light, two commands."""

import ast
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pipla
from pipla._threads import one_thread_per_device
from pipla.cli import app as cli
from pipla.cli import demo
from pipla.report.page import Section, Table, Text, write_page

SOURCE = Path(pipla.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# From the ground up; a room may use the rooms below its floor, and itself.
FLOORS = [
    {"checks", "folders", "metrics", "pictures", "threads"},
    {"blur", "eigenbasis", "prox"},
    {"operators"},
    {"likelihood"},
    {"model"},
    {"algorithms"},
    {"curvature", "diagnostics", "forms", "progress", "save"},
    {"loop", "prepare"},
    {"tuning"},
    {"result", "spread", "storage"},
    {"drive"},
    {"map_estimate", "run"},
    {"restoration", "sweep"},
    {"problems", "report", "reparametrise"},
    {"recommended"},
    {"deblur", "demo", "estimators", "experiments"},
    {"cli"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
TOP = "pipla"  # the package itself: names everything

# Two halves of one idea (a result, and how it is kept), and the version, which is data.
EXCEPTIONS = {("result", "storage"), ("storage", "result"), ("result", TOP), ("cli", TOP)}


def name_of(path):
    return str(path.relative_to(SOURCE))


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """The modules of pipla that a file imports, anywhere in it: (room, full name)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module]
            if node.module == "pipla":
                known = {alias.name: alias.name in FLOOR for alias in node.names}
                names = [f"pipla.{name}" if room else TOP for name, room in known.items()]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "pipla":
                yield ([*name.split("."), TOP])[1], name


def test_every_room_has_a_floor():
    rooms = {room_of(path) for path in FILES} - {"__init__"}
    assert rooms <= set(FLOOR), "say in FLOORS where a new room stands"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_down(path):
    room = room_of(path)
    if room == "__init__":
        return
    for used, name in imports(path):
        if used == room or (room, used) in EXCEPTIONS:
            continue
        assert used != TOP, f"{room} imports the whole package"
        assert FLOOR[used] < FLOOR[room], f"{room} (floor {FLOOR[room]}) imports {name} above it"


def test_exceptions_are_still_needed():
    used = {(room_of(path), other) for path in FILES for other, _ in imports(path)}
    assert used >= EXCEPTIONS


@pytest.mark.parametrize("room", ["loop", "prepare", "drive", "run", "sweep", "tuning"])
def test_the_loop_does_not_know_which_algorithm_it_runs(room):
    used = {name for _, name in imports(SOURCE / f"{room}.py")}
    kinds = {name for name in used if name.startswith("pipla.algorithms")}
    assert kinds <= {"pipla.algorithms.base"}


def names_used(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("algorithms", {"jit", "filter_jit", "print", "open", "savefig", "warn"}),
        ("prox", {"jit", "filter_jit", "print", "open", "random", "warn"}),
        ("model.py", {"jit", "random", "step_size", "print", "open"}),
        ("problems", {"Algorithm", "PIPGLA", "MYIPLA", "print"}),
        ("result.py", {"step", "advance", "print"}),
        ("cli.py", {"grad", "numpy", "jnp"}),
    ],
)
def test_rooms_leave_alone_what_is_not_theirs(room, forbidden):
    files = [path for path in FILES if name_of(path).startswith(room)]
    assert files
    for path in files:
        assert not forbidden & set(names_used(path)), path


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


# Words. #

MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(pipla.__path__, "pipla.")
    if not info.name.endswith("__main__")
]


@pytest.mark.parametrize("module", [pipla, *MODULES], ids=lambda module: module.__name__)
def test_every_public_name_says_what_it_is(module):
    assert module.__doc__, module.__name__
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module.__name__}.{name}"
        if inspect.isclass(value):
            for member, method in vars(value).items():
                if member.startswith("_") or not inspect.isfunction(method):
                    continue
                if method.__name__ == "<lambda>":  # the default of a field
                    continue
                # What overrides a documented method is documented by it.
                words = [
                    inspect.getdoc(vars(base)[member])
                    for base in value.__mro__
                    if member in vars(base)
                ]
                assert any(words), f"{module.__name__}.{name}.{member}"


@pytest.mark.parametrize("module", [pipla, pipla.prox, pipla.algorithms, pipla.problems])
def test_what_is_promised_is_there(module):
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


# A light import. #

HEAVY = {
    "IPython", "PIL", "absl", "arviz", "chex", "flax", "hypothesis", "matplotlib", "numba", "optax",
    "orbax", "pandas", "png", "pooch", "pytest", "pywt", "rich", "scipy", "skimage", "sklearn", "tensorflow",
    "tifffile", "torch", "typer", "xarray",
}  # fmt: skip


def modules_after(code):
    """What a fresh interpreter has imported, and whether JAX has touched a device."""
    tail = "import sys; print(' '.join({name.split('.')[0] for name in sys.modules}))"
    output = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tail}"], capture_output=True, text=True, check=True
    ).stdout
    return set(output.split())


def test_importing_pipla_imports_nothing_heavy():
    assert not HEAVY & (modules_after("import pipla") - modules_after("import jax"))


def test_importing_pipla_does_not_start_jax():
    # Whoever imports it may still choose platform, devices and precision.
    code = "import pipla; from jax._src.xla_bridge import backends_are_initialized as started"
    code += "; print(started())"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "False"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "1"), ({"PIPLA_THREADS": "all"}, "None"), ({"PJRT_NPROC": "3"}, "3")],
    ids=["default", "all threads", "chosen"],
)
def test_one_thread_per_device_unless_the_user_says_otherwise(environment, expected, monkeypatch):
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    monkeypatch.delenv("PIPLA_THREADS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    one_thread_per_device()
    assert str(os.environ.get("PJRT_NPROC")) == expected


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
        outcome = CliRunner().invoke(cli.app, ["demo", "--out", str(folder / "out"), "--seed", "1"])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output, folder / "out"


def test_the_demo_prints_a_table_and_where_the_page_is(page):
    output, folder = page
    lines = output.splitlines()
    for column in ("model", "algorithm", "theta", "error", "exact maximiser", "paper", "seconds"):
        assert column in lines[0]
    body = "\n".join(lines)
    for word in ("toy", "logistic", "MYIPLA", "PIPGLA", "non-centred"):
        assert word in body
    assert str(folder / "report.html") in output


def test_the_demo_page_is_self_contained(page):
    _, folder = page
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>")
    sources = re.findall(r"(?:src|href|action|data|poster)\s*=\s*['\"]([^'\"]*)", text)
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"@import|url\(|<link|<iframe|fetch\(|XMLHttpRequest|https?://", text)


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
