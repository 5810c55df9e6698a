"""The page: rebuilt from the files alone, and opened in a browser."""

import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from pipla_lab.experiments import find, load
from pipla_lab.experiments.page import only, rebuild, write_report
from pipla_lab.experiments.registry import select
from pipla_lab.experiments.results import Results
from pipla_lab.experiments.theta.findings import add_comparison, best_published, verdict
from pipla_lab.experiments.theta.rows import ThetaRow


def test_the_page_is_rebuilt_from_the_files(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    shutil.rmtree(folder / "figures")
    (folder / "report.html").unlink()
    page = rebuild(folder).read_text()
    assert sorted(p.name for p in (folder / "figures").iterdir()) == sorted(
        p.name for p in (finished / "figures").iterdir()
    )
    assert page == (finished / "report.html").read_text()
    for words in (
        "What was run",
        "Against the maximiser",
        "Errata",
        "Reproduce",
        "pipla experiment",
    ):
        assert words in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_command_names_the_rows_that_were_asked_for():
    experiment = find("toy")
    for words, option in (
        (["PIPGLA"], ' --algorithms "PIPGLA"'),
        ([experiment.entries[0].variant], f' --algorithms "{experiment.entries[0].variant}"'),
        (None, ""),
    ):
        results = Results("toy", "quick", {}, 0, {})
        results.rows = [SimpleNamespace(id=entry.id) for entry in select(experiment, words)]
        assert only(results) == option


def invented(name, most=6):
    """Made-up rows and series of some entries of an experiment."""
    experiment, rng = find(name), np.random.default_rng(0)
    settings = {
        "replicates": 4,
        "num_particles": 50,
        "num_steps": 100,
        "average_last": 20,
        "data": "the authors' own",
        "from_folder": True,
        "float64": False,
        "truth": -4.0,
    }
    reference = {"theta": -4.6, "stderr": 0.01, "method": "invented", "seconds": 1.0}
    results = Results(name, "quick", settings, 0, {"pipla": "0"}, reference)
    steps = np.arange(1, 101)
    every = -(-len(experiment.entries) // most)
    for entry in experiment.entries[::every]:
        algorithm = entry.make() if entry.make else None
        numbers = {
            "step_size": float(getattr(algorithm, "step_size", None) or 0.1),
            "smoothing": float(getattr(algorithm, "smoothing", None) or 0.1),
            "num_particles": entry.num_particles or 50,
            "theta_variance": 1 / (entry.num_particles or 50),
            **dict.fromkeys(("theta_mean", "theta_last_mean"), -4.5 + 0.1 * rng.normal()),
            **dict.fromkeys(("theta_sd", "theta_last_sd", "nmse_last_sd", "nmse_average_sd"), 0.1),
            **dict.fromkeys(("nmse_last", "nmse_average"), 3 + rng.uniform()),
            **dict.fromkeys(("seconds", "compile_seconds", "evaluations"), 100.0),
            **dict.fromkeys(("distance_to_reference", "distance_last"), rng.uniform()),
            "bias": 0.1,
            "finite": 1.0,
            "replicates": 4,
            "num_steps": 100,
        }
        names_ = {n: getattr(entry, n) for n in ("algorithm", "prox", "variant", "id", "detail")}
        paper = {"paper": dict(entry.paper), "note": entry.note, "label": entry.label}
        results.rows.append(ThetaRow(**names_, **numbers, **paper))
        for curve in ("steps", "evaluations"):
            results.series[f"{entry.id}:{curve}"] = steps
        for curve in ("rms", "estimate_rms", "nmse", "mean"):
            results.series[f"{entry.id}:{curve}"] = 1 / np.sqrt(steps)
        results.series[f"{entry.id}:sample"] = rng.normal(size=(3, 100))
    add_comparison(results)
    return results


@pytest.mark.parametrize("name", ["logistic-laplace", "rate", "traces", "ablation"])
@pytest.mark.parametrize("part", ["all", "one row", "no rows", "rows without a finite run"])
def test_every_experiment_has_a_page_however_far_it_got(name, part, tmp_path):
    results = invented(name)
    if part == "one row":
        del results.rows[1:]
    elif part == "no rows":
        results.rows.clear()
    elif part == "rows without a finite run":
        for row in results.rows[::2]:
            row.finite = 0.0
            for key in ("theta_mean", "theta_sd", "nmse_last", "nmse_last_sd", "nmse_average"):
                setattr(row, key, None)
            row.distance_to_reference = row.bias = row.theta_variance = None
            for curve in ("rms", "estimate_rms", "nmse", "mean"):
                results.series[f"{row.id}:{curve}"] = np.full(100, np.nan)
            results.series[f"{row.id}:sample"] = np.zeros((0, 100))
        add_comparison(results)
    page = write_report(results, tmp_path).read_text()
    assert find(name).title in page
    assert page.count("<img") == len(list((tmp_path / "figures").glob("*.png")))


def test_a_row_is_flagged_beyond_two_deviations():
    row = dataclasses.replace(
        invented("logistic-laplace").rows[0],
        nmse_last=10.0,
        nmse_last_sd=6.0,
        paper={"nmse_last": 0.0, "nmse_last_sd": 4.0},
    )
    assert (row.replicates, row.finite) == (4, 1.0)
    assert verdict(row) == "agrees"
    assert verdict(dataclasses.replace(row, nmse_last=10.1)) == "higher"
    assert verdict(dataclasses.replace(row, nmse_last=-10.1)) == "lower"
    assert verdict(dataclasses.replace(row, paper={})) is None


def test_evaluations_to_the_papers_best_are_those_after_which_the_estimate_stays_there():
    results = invented("logistic-laplace")
    best = best_published(results)
    assert best.paper
    best.distance_to_reference = 0.2  # the curve 1/sqrt(n) is within 1.1 of it from n = 21 on
    curve = results.series[f"{best.id}:estimate_rms"]
    add_comparison(results)
    assert best.evaluations_to_paper_best == 21
    curve[50] = 1.0  # it leaves again
    add_comparison(results)
    assert best.evaluations_to_paper_best == 52


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        pytest.skip("no Chromium on this machine")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, finished):
    page = browser.new_page()
    problems = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda r: None if r.url[:4] in ("file", "data") else problems.append(r.url))
    page.goto((finished / "report.html").as_uri())
    yield SimpleNamespace(page=page, problems=problems, results=load(finished))
    page.close()


def test_in_a_browser_all_figures_load_and_nothing_complains(opened):
    widths = opened.page.eval_on_selector_all("img", "all => all.map(i => i.naturalWidth)")
    assert len(widths) == 3
    assert all(width > 0 for width in widths)
    assert opened.problems == []


def test_in_a_browser_the_table_sorts_on_click_and_by_keyboard(opened):
    table = opened.page.locator("table").last
    headings = table.locator("th").all_inner_texts()
    column = headings.index("distance")
    heading = table.locator("th").nth(column)

    def shown():
        cells = table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
        return [float(cell) for cell in cells]

    assert len(shown()) == len(opened.results.rows)
    heading.click()
    assert shown() == sorted(shown())
    heading.press("Enter")
    assert shown() == sorted(shown(), reverse=True)
    assert opened.problems == []
