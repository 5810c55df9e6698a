"""The experiments' matrices, their measures, and the methods of others."""

import numpy as np
import pytest

from pipla_lab.experiments.completion import peers
from pipla_lab.experiments.completion.experiment import measured, nmse, summarise
from pipla_lab.experiments.completion.matrices import Observed, checkerboard, masked_board
from pipla_lab.experiments.completion.methods import Completed
from pipla_lab.experiments.registry import find
from pipla_lab.experiments.results import Results


def as_observed(matrix):
    """The entries of a matrix that are not NaN."""
    matrix = np.asarray(matrix)
    rows, columns = np.nonzero(~np.isnan(matrix))
    return Observed(rows, columns, matrix[rows, columns], matrix.shape)


def test_the_board_has_rank_two_and_the_papers_noise():
    board = checkerboard()
    assert board.shape == (188, 188)
    assert np.linalg.matrix_rank(board) == 2
    assert set(np.unique(board)) == {0.0, 179.0, 255.0}
    matrix = masked_board(188, 0)
    residual = matrix.observed.values - board[matrix.observed.rows, matrix.observed.columns]
    # Five standard errors of a variance: a right program fails once in a million.
    assert abs(residual.var() / 0.1 - 1) < 5 * np.sqrt(2 / residual.size)
    assert residual.size == 188**2 - round(0.3 * 188**2)


def test_soft_impute_is_the_prox_where_everything_is_observed():
    matrix = np.random.default_rng(0).normal(size=(5, 8))
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    expected = (u * np.maximum(s - 1.5, 0)) @ v
    found = peers.soft_impute(as_observed(matrix), 1.5, np.zeros((5, 8)))
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_soft_impute_stops_where_the_gradient_is_in_the_subdifferential():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 9))
    matrix[rng.random(matrix.shape) < 0.3] = np.nan
    found = peers.soft_impute(as_observed(matrix), 0.7, np.zeros((12, 9)), iterations=3000)
    pull = np.where(np.isnan(matrix), 0.0, np.nan_to_num(matrix) - found)
    # The misfit's gradient is a subgradient of the norm: of spectral norm 0.7, and aligned.
    assert np.linalg.norm(pull, 2) < 0.7 * 1.01
    nuclear = np.linalg.norm(found, "nuc")
    assert abs(np.sum(pull * found) / (0.7 * nuclear) - 1) < 0.01


def test_soft_impute_of_the_residuals_does_not_see_a_constant():
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 9))
    matrix[rng.random(matrix.shape) < 0.3] = np.nan
    options = {"penalties": 4, "iterations": 20}
    found, moved = (
        peers.centred_soft_impute_cv(as_observed(matrix + shift), 0, **options)
        for shift in (0.0, 50.0)
    )
    np.testing.assert_allclose(moved, found + 50.0, atol=1e-8)


def test_the_biased_mean_is_shrunk():
    mean, a, b = as_observed([[1.0, 3.0], [np.nan, 5.0]]).biased_mean(shrinkage=0.0)
    assert mean == 3.0
    np.testing.assert_allclose(b, [-2.0, 1.0])
    np.testing.assert_allclose(a, [-0.5, 1.0])


def test_errors_and_coverage_are_of_the_missing_entries():
    board = masked_board(16, 0)
    missing = np.isnan(board.observed.filled(np.nan))
    wrong = board.truth + 10.0 * missing
    done = Completed(wrong, 0.0, interval=(wrong - 9.0, wrong + 9.0))
    found = measured(done, board)
    assert found["coverage"] == 0.0
    assert found["width"] == pytest.approx(18.0)
    expected = 100 * 100 * missing.sum() / np.sum(board.truth[missing] ** 2)
    assert found["nmse_missing"] == pytest.approx(expected)
    assert found["particle_nmse"] is None
    assert nmse(np.full(3, np.inf), np.ones(3)) is None


def test_the_page_says_what_became_of_the_papers_settings():
    experiment, board = find("matrix-completion"), masked_board(16, 0)
    wide = (board.truth - 30.0, board.truth + 20.0)
    found = {
        "published": Completed(board.truth, 1.0, board.truth * 0.9, theta=-4.6, num_steps=40),
        "corrected": Completed(np.full(board.truth.shape, np.inf), 1.0, finite=False, theta=np.nan),
        "recommended": Completed(board.truth, 1.0, interval=wide),
    }
    entries = {entry.variant: entry for entry in reversed(experiment.entries)}
    rows = [summarise(entries[kind], [board], [done], {}).row for kind, done in found.items()]
    fates = [
        {"variant": "published", "size": 24, "steps": 9, "nmse_missing": 100.0, "theta": 33.0},
        {"variant": "corrected", "size": 24, "steps": 9, "nmse_missing": 66.2, "theta": -1.1},
    ]
    results = Results("matrix-completion", "tiny", {}, 0, {}, {"fates": fates}, rows=rows)
    results.series[f"{rows[0].id}:truth"] = board.truth
    said = [part.text for part in experiment.findings(results)]
    # A particle that is a tenth too small has an error of a hundredth of the square.
    assert "40 steps: NMSE of missing entries 1 %, theta1 = -4.6 from -5" in said[0]
    start = 100 * np.sum((50 - board.truth) ** 2) / np.sum(board.truth**2)
    assert f"The start has {start:.3g} %" in said[0]
    assert said[1] == f"{rows[1].label}: not finite."
    assert "published, on a board of 24 × 24 pixels: NMSE of missing entries 100 %" in said[2]
    assert "E4" in said[2]
    assert "66.2 %, theta1 = -1.1." in said[3]
    assert "E4" not in said[3]
    assert "hold 100.0 % of them and are 50 wide" in said[4]
    assert len(said) == 5
    assert [len(line) for line in experiment.summary(results).rows] == [len(experiment.columns)] * 3


def test_without_ratings_there_are_no_rows(monkeypatch):
    monkeypatch.delenv("PIPLA_DATA", raising=False)
    experiment = find("ratings")
    assert experiment.available(experiment.presets["quick"]) == []
    assert "PIPLA_DATA" in experiment.unavailable()
