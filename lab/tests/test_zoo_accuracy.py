"""How far off `pipla.fit` is on the problems of the zoo, and the table that says so."""

import pytest

from pipla_lab.zoo.accuracy import Row, counts, measure, table

pytestmark = pytest.mark.slow

#: A scale with a noise, and a constraint (a location is in the docstring of `fit`, which is run);
#: `pipla zoo run` has them all.
NAMES = ("diabetes", "uniform-half-width")


@pytest.fixture(scope="module", params=NAMES)
def row(request):
    return next(measure([request.param]))


def test_it_is_right_and_says_so(row):
    """Theta within .1 of its standard error, means within .1 sd, sds within 5 %: one fixed seed."""
    assert row.verdict == "right", row


def test_the_table_of_the_zoo_says_who_is_wrong_in_silence():
    rows = [
        Row("a", "fit", 0.01, 0.02, 0.03, True, True, 100, 1.0, ""),
        Row("a", "PIPGLA", 9.0, 0.02, 0.03, False, True, 100, 1.0, ""),
        Row("a", "MYIPLA", 9.0, 0.02, 0.03, False, False, 100, 1.0, "moving"),
    ]
    assert [row.verdict for row in rows] == ["right", "WRONG", "wrong, said so"]
    assert "WRONG" in table(rows).text()
    assert counts(rows).text().splitlines()[-1].split() == ["MYIPLA", "0", "0", "1", "0", "0"]
    assert "as many gradients as fit, but no more than 1.0e+06" in table(rows, 10**6).caption
    assert "gradients as fit." in table(rows).caption
    assert "gradients" not in table(rows[:1]).caption


def test_a_peer_that_takes_too_long_is_stopped():
    """PIPGLA on tv-signal-learned-noise took more than ten minutes."""
    fitted, peer = measure(["gaussian-location"], ["PIPGLA"], most=50_000, seconds=1e-9)
    assert (fitted.verdict, peer.verdict) == ("right", "stopped")
    assert peer.evaluations < 50_000
    assert "more than 1e-09 s were stopped" in table([fitted, peer], 50_000, 1e-9).caption


def test_the_table_of_the_zoo_refuses_other_names_and_too_few_gradients():
    with pytest.raises(ValueError, match=r"algorithm must be one of 'PIPGLA'.*got 'Gibbs'"):
        next(measure(["lasso"], ["Gibbs"]))
    with pytest.raises(ValueError, match="most must be at least 10000, got 99"):
        next(measure(["lasso"], ["PIPGLA"], most=99))


def test_the_table_of_the_zoo_fits_100_columns_whatever_the_errors():
    """MYIPLA was 1222961368999482720518144.000 standard errors off on nonnegative-poisson."""
    rows = [
        Row(
            "laplace-scale-learned-noise",
            "recommended",
            1.2e24,
            2727.6,
            25706.7,
            False,
            False,
            5700000,
            44.1,
            "",
        )
    ]
    lines = table(rows).text().splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1].split()[2:5] == ["1e+24", "3e+03", "3e+04"]
