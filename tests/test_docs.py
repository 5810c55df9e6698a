"""The documentation runs: every python block, in order, in a fresh namespace for each page.

A block fenced as `output` holds what the python blocks since the last one print; it is compared.
Blocks that are not run (shell commands, excerpts) are fenced as `text` or `sh`.
"""

import contextlib
import io
import re
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.testing import check_algorithm, check_prox

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "output", "text", "sh", "bibtex"}


def name_of(path):
    return str(path.relative_to(ROOT))


def blocks(path):
    """The fenced blocks of a page: language, code, and the line on which the code begins."""
    text = path.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield match[1], match[2], text.count("\n", 0, match.start(2))


def run_page(path, namespace):
    """Run the page's blocks; yield the printed text and the expected text where there is one."""
    printed = io.StringIO()
    for language, code, line in blocks(path):
        if language == "python":
            # Line numbers of a traceback are those of the page.
            program = compile("\n" * line + code, str(path), "exec")
            with contextlib.redirect_stdout(printed):
                exec(program, namespace)
        elif language == "output":
            yield printed.getvalue(), code
            printed.seek(0)
            printed.truncate()


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Runs a page in an empty folder, compares its output, and returns its namespace."""
    monkeypatch.chdir(tmp_path)

    def run(path):
        code = "".join(code for language, code, _ in blocks(path) if language == "python")
        if "pipla_lab" in code or "pipla.zoo" in code:
            pytest.importorskip("pipla_lab")
        namespace = {"__name__": "page"}
        for printed, expected in run_page(path, namespace):
            assert printed.rstrip() == expected.rstrip()
        return namespace

    return run


runnable = [path for path in PAGES if any(block[0] == "python" for block in blocks(path))]
#: These pages share one compiled program, so one test runs both.
together = [ROOT / "docs" / "saving.md", ROOT / "docs" / "performance.md"]


run_elsewhere = {*together, ROOT / "CONTRIBUTING.md"}
README = ROOT / "README.md"
#: The README belongs to the quick tier.
each_page = [
    pytest.param(path, id=name_of(path), marks=[] if path == README else pytest.mark.slow)
    for path in runnable
    if path not in run_elsewhere
]


@pytest.mark.parametrize("path", each_page)
def test_every_block_of_the_page_runs_and_prints_what_it_says(path, page):
    page(path)


@pytest.mark.slow
def test_every_block_runs_of_the_pages_on_saving_and_performance(page):
    for path in together:
        page(path)


@pytest.fixture(scope="module")
def skeletons():
    """The namespace of CONTRIBUTING.md, run once: an algorithm cannot be registered twice."""
    namespace = {"__name__": "skeletons"}
    assert list(run_page(ROOT / "CONTRIBUTING.md", namespace)) == []
    return namespace


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dead_zone", "sum_around_case", "linear_l1"])
def test_skeletons_of_terms_keep_every_contract(name, skeletons):
    check_prox(skeletons[name])


@pytest.mark.slow
def test_skeletons_of_terms_have_a_standard_error_in_fit(skeletons):
    """A term from outside of pipla gets what pipla's own get; here the answers are known."""
    y, noise, weight = np.asarray([1.0, -0.5, 2.0, 0.5]), 0.5, 2.0

    def around(theta, x, data):
        return jnp.sum((x - data) ** 2) / (2 * noise**2)

    model = pipla.Model(around, skeletons["SumAround"](weight), y)
    found = pipla.fit(model, theta=0.0, x=np.zeros(4))
    exact = np.sqrt(1 / weight + 4 * noise**2)
    assert found.converged
    assert found.theta == pytest.approx(3.0, abs=0.1 * exact)
    assert found.theta_stderr == pytest.approx(exact, rel=0.05)

    def shifted(theta, x, data):
        return jnp.sum((theta + x - data) ** 2) / (2 * noise**2)

    grid = np.linspace(-15, 15, 6001)
    prior = np.exp(-np.maximum(np.abs(grid) - 0.5, 0))

    def marginal(theta):
        return np.log(np.exp(-((theta + grid - y[:, None]) ** 2) / (2 * noise**2)) @ prior).sum()

    thetas = np.linspace(-1, 3, 401)
    values = np.asarray([marginal(theta) for theta in thetas])
    best = np.argmax(values)
    exact = 0.01 / np.sqrt(2 * values[best] - values[best - 1] - values[best + 1])
    found = pipla.fit(pipla.Model(shifted, skeletons["DeadZone"](0.5), y), theta=0.0, x=np.zeros(4))
    assert found.theta == pytest.approx(thetas[best], abs=0.1 * exact)
    assert found.theta_stderr == pytest.approx(exact, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tamed", "underdamped"])
def test_skeletons_of_algorithms_keep_every_contract(name, skeletons):
    check_algorithm(skeletons[name])


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_blocks_say_what_they_are(path):
    assert {language for language, _, _ in blocks(path)} <= LANGUAGES


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=name_of)
@jax.numpy_dtype_promotion("standard")  # as a user has it; adam needs it
def test_example_runs(path, capsys):
    main = runpy.run_path(str(path))["main"]
    result = main(num_steps=120) if path.stem == "residual_network" else main()
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "still moving" not in printed
    if path.stem == "own_model":
        # The data are drawn around 5 with 12 hospitals; 40 000 steps put the maximum at 5.32.
        assert abs(result.theta["centre"] - 5.32) < 0.05
    if path.stem == "network":
        assert "equal bit for bit: True" in printed
        # Guessing gives 33 %; 600 images have a standard deviation of 1 % here.
        assert float(re.search(r"correctly: ([\d.]+)%", printed)[1]) > 90
    if path.stem == "residual_network":
        # Guessing gives 90 %; 1197 images have a standard deviation of 1 % here.
        assert float(re.search(r"new images: ([\d.]+)%", printed)[1]) < 8


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_into_the_repository_lead_somewhere(name):
    for target in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


def test_readme_lists_every_algorithm_and_every_term():
    text = README.read_text(encoding="utf-8")
    to_subclass = {"ClosedForm", "Fixed", "Iterative", "SoftThreshold", "Solution", "Term", "Zero"}
    calculus = {"On", "Scaled", "Sum", "Translated"}
    types = {"Hyperparameter", "Number", "Regularity", "Scalar"}
    classes = {name for name in pipla.prox.__all__ if name[0].isupper()}  # not the helpers
    terms = classes - to_subclass - calculus - types
    algorithms = {name for name in pipla.__all__ if name.isupper()}
    assert {name for name in terms | algorithms if f"`{name}`" not in text} == set()
