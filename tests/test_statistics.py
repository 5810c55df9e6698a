"""The statistics by which every part of the library judges: each against the field's own."""

import numpy as np
import pytest

from pipla.diagnostics import Finding, Severity, chance_of_differences, rhat, warn_of

RNG = np.random.default_rng(0)
DRAWS = {
    "independent": RNG.standard_normal((100, 4)),
    "apart": RNG.standard_normal((100, 4)) + np.arange(4),
    "different spreads": RNG.standard_normal((101, 4)) * [1, 1, 1, 4],
    "drifting": np.cumsum(RNG.standard_normal((60, 3)), axis=0),
    "Cauchy": RNG.standard_cauchy((200, 4)),
    "mostly 0": np.where(RNG.random((300, 2)) < 0.9, 0.0, RNG.standard_normal((300, 2))),
}


@pytest.mark.parametrize("method", ["rank", "split"])
@pytest.mark.parametrize("name", DRAWS)
def test_r_hat_is_that_of_arviz(name, method):
    arviz = pytest.importorskip("arviz")
    expected = float(arviz.rhat(DRAWS[name].T, method=method))
    assert float(rhat(DRAWS[name], method)) == pytest.approx(expected, rel=1e-6)


def test_each_series_has_an_r_hat_of_its_own():
    both = np.stack([DRAWS["independent"], DRAWS["apart"]], axis=-1)
    alone = [float(rhat(both[..., 0])), float(rhat(both[..., 1]))]
    assert rhat(both) == pytest.approx(alone)
    assert rhat(both)[0] < 1.05 < 1.2 < rhat(both)[1]


def test_few_draws_and_constants_are_not_judged():
    assert np.isnan(rhat(np.zeros((3, 4))))
    assert rhat(np.ones((100, 4))) == 1
    rounding = 1 + 1e-9 * RNG.standard_normal((100, 4)) + 1e-8 * np.arange(4)
    assert rhat(rounding) == 1


@pytest.mark.filterwarnings("error")
def test_chains_that_stand_still_at_different_places_never_agree():
    assert rhat(np.tile([0.0, 1.0], (50, 1)), "split") == np.inf


def test_chance_of_differences_is_uniform_if_there_are_none():
    """Independent draws: a share of 10 % of the p-values is below .1, plus or minus three errors."""
    rng = np.random.default_rng(1)
    found = [chance_of_differences(rng.standard_normal((3, 5))) for _ in range(2000)]
    assert np.mean(np.asarray(found) < 0.1) == pytest.approx(0.1, abs=3 * (0.09 / 2000) ** 0.5)
    assert chance_of_differences(DRAWS["apart"]) < 1e-10
    assert chance_of_differences(DRAWS["apart"][:1]) == 1


def test_a_finding_is_read_as_one_sentence_and_warned_of_by_its_category():
    found = Finding("theta['noise']", "the noise is not known", "run longer")
    assert str(found) == "the noise is not known: run longer"
    assert found.severity is Severity.DOUBT
    assert str(Finding("y", "y is constant")) == "y is constant"
    with pytest.warns(RuntimeWarning, match="run longer"):
        warn_of([found], RuntimeWarning)
