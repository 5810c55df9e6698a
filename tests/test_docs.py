"""The documentation runs: every python block, in order, in a fresh namespace for each page.

A block fenced as `output` is what the python blocks since the last one print, and is compared.
Blocks that cannot run here (shell, pieces of files) are fenced as `text` or `sh`.
"""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

import pipla

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


runnable = [path for path in PAGES if any(block[0] == "python" for block in blocks(path))]


@pytest.mark.parametrize("path", runnable, ids=name_of)
def test_every_block_of_the_page_runs_and_prints_what_it_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for printed, expected in run_page(path, {"__name__": "page"}):
        assert printed.rstrip() == expected.rstrip()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_blocks_say_what_they_are(path):
    assert {language for language, _, _ in blocks(path)} <= LANGUAGES


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=name_of)
def test_example_runs(path, capsys):
    main = runpy.run_path(str(path))["main"]
    main(num_steps=200, num_particles=8)
    assert "nan" not in capsys.readouterr().out


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_into_the_repository_lead_somewhere(name):
    for target in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


def test_readme_lists_every_algorithm_and_every_term():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    to_subclass = {"ClosedForm", "Fixed", "Iterative", "SoftThreshold", "Solution", "Term", "Zero"}
    calculus = {"On", "Scaled", "Sum", "Translated", "separable_sum"}
    terms = set(pipla.prox.__all__) - to_subclass - calculus
    algorithms = {name for name in pipla.algorithms.__all__ if name.isupper()}
    assert {name for name in terms | algorithms if f"`{name}`" not in text} == set()
