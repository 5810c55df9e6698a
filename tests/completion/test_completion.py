"""Completion of matrices: errors, intervals, single rows, triplets, the estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

import pipla
from pipla.completion import Triplets, _doubts, complete
from pipla.completion._observations import as_observed
from pipla.completion._running import saved_steps
from pipla.completion.draws import FactorDraws
from pipla.completion.estimators import LowRankCompletion
from pipla.completion.factors import _inflation
from pipla.engine.result import Status

SHAPE = (24, 16)


def low_rank(seed, noise=0.5, rank=2, missing=0.4, new_rows=0):
    """A matrix, and noisy observations of it with gaps.

    The gaps are the same for every seed: programs are compiled for a pattern of them.
    """
    rng, shape = np.random.default_rng(seed), (SHAPE[0] + new_rows, SHAPE[1])
    left, right = (rng.standard_normal((size, rank)) for size in shape)
    truth = 3.0 + left @ right.T
    gaps = np.random.default_rng(99).random(shape) < missing
    return truth, np.where(gaps, np.nan, truth + noise * rng.standard_normal(shape))


def fitted(seed=0, **options):
    truth, observed = low_rank(seed)
    return truth, observed, complete(observed, max_rank=3, seed=seed, **options)


@pytest.fixture(scope="module")
def one():
    return fitted()


def test_missing_entries_are_predicted(one):
    truth, observed, found = one
    missing = np.isnan(observed)
    error = np.mean((found.mean() - truth)[missing] ** 2)
    spread = np.var(truth[missing])
    assert error < 0.35 * spread  # and the mean of all has 1
    assert found.rank == 2
    assert abs(found.noise / 0.5 - 1) < 0.25
    assert found.noise_source == "learned"


def test_observed_entries_come_back_as_they_are(one):
    _, observed, found = one
    filled, seen = found.fill(observed), ~np.isnan(observed)
    np.testing.assert_array_equal(filled[seen], observed[seen])
    assert np.isfinite(filled).all()
    # Given the columns, or averaged over draws of the rows: the same but for Monte-Carlo error.
    apart = np.abs(filled - found.mean())[~seen] / found.std()[~seen]
    assert np.sqrt(np.mean(apart**2)) < 0.4


def test_single_entries_are_those_of_the_matrix(one):
    _, _, found = one
    rows, columns = np.array([0, 3, 3, 23]), np.array([1, 15, 0, 7])
    np.testing.assert_allclose(found.entries(rows, columns), found.mean()[rows, columns], rtol=1e-4)
    for noisy in (False, True):
        alone = found.interval(0.8, rows, columns, noisy=noisy)
        together = found.interval(0.8, noisy=noisy)
        for end, matrix in zip(alone, together, strict=True):
            np.testing.assert_allclose(end, matrix[rows, columns], rtol=1e-4)


def test_noise_widens_intervals_as_much_as_variances_add(one):
    _, _, found = one
    widths = []
    for noisy in (False, True):
        low, high = found.interval(0.9, noisy=noisy)
        widths.append(np.mean((high - low) ** 2) / (2 * 1.645) ** 2)
    assert abs((widths[1] - widths[0]) / found.noise**2 - 1) < 0.25


@pytest.mark.slow
def test_intervals_hold_what_they_say():
    # The data are drawn from the prior. 12 matrices of about 150 gaps, whose errors are correlated as
    # if there were about 20 per matrix: a standard error of .02 at most. Four of them, and .03 for
    # scales that are learned and not known, are .11: a right program fails less than once in 10 000.
    inside = []
    for seed in range(12):
        truth, observed, found = fitted(seed, num_steps=240)
        low, high = found.interval(0.9)
        missing = np.isnan(observed)
        inside.append(np.mean(((low <= truth) & (truth <= high))[missing]))
    assert abs(np.mean(inside) - 0.9) < 0.11


def test_triplets_are_the_matrix(one):
    _, observed, found = one
    rows, columns = np.nonzero(~np.isnan(observed))
    triplets = Triplets(rows, columns, observed[rows, columns], SHAPE)
    again = complete(triplets, max_rank=3)
    np.testing.assert_array_equal(again.mean(), found.mean())


def test_columns_that_do_not_count_are_noise():
    # Entries of variance .2 in noise of variance 1: 1.2 together.
    signal = np.array([90.0, 2.0, 1e-8])
    theta = {"scale": 0.25 * np.log([9.0, 0.2, 1e-9]), "noise": 0.0}
    whole = 3.0 * _inflation(signal, theta)
    np.testing.assert_allclose(whole, 3 * np.sqrt(1.2))
    (said,) = map(str, _doubts.near_the_limit(1, 3.0, whole))
    assert "limit: 1;" in said
    assert f"is 3, not {whole:.3g}" in said
    signal[1] = 3.1  # it counts
    assert _inflation(signal, theta) == pytest.approx(1.0)
    assert _doubts.near_the_limit(0, 3.0, 3.0) == ()


# What the model does not hold for is said. #


def test_a_large_offset_loses_no_digits():
    # In single precision, values around 1e8 are multiples of 8.
    _, observed, near = fitted(num_steps=30)
    far = complete(observed + 1e8, max_rank=3, num_steps=30)
    rows, columns = np.array([0, 5]), np.array([1, 2])
    for ask in (
        lambda found: found.mean(),
        lambda found: found.interval(0.9)[0],
        lambda found: found.entries(rows, columns),
    ):
        np.testing.assert_allclose(ask(far) - 1e8, ask(near), atol=1e-3)
    constant = complete(np.array([[1e8 + 1, 1e8 + 2, 1e8 + 3, np.nan]]))
    assert abs(float(constant.mean()[0, 3]) - (1e8 + 2)) < 1


def test_columns_with_units_of_their_own_are_mentioned():
    _, observed = low_rank(0, missing=0.4)
    units = np.where(np.arange(SHAPE[1]) % 4 == 0, 1e4, 1e-3)
    assert said_of(observed * units) == ["units"]
    assert said_of(observed) == []


def test_outliers_are_mentioned():
    # The factors follow a single one, which leaves no residual there; they cannot follow many.
    _, observed = low_rank(0)
    single, many = observed.copy(), observed.copy()
    single[np.unravel_index(np.nanargmax(observed), SHAPE)] += 1e3
    many[::3, ::3] *= 10
    assert said_of(single) == ["outliers"]
    assert said_of(many) == ["outliers"]


def said_of(observed):
    """The warnings about the noise, by a word of theirs; the fit uses the program of the others."""
    found = complete(observed, max_rank=3, num_steps=90)
    words = ("units", "outliers", "missing entries")
    return [word for word in words for said in found.findings if word in str(said)]


def test_gaussian_residuals_are_not_mentioned():
    # The limits are five standard errors away, or more: a false alarm in 1e6 at the most.
    rng = np.random.default_rng(0)
    for shape in ((30, 8), (300, 20)):
        observed = as_observed(rng.standard_normal(shape))
        for _ in range(20):
            residual = rng.standard_normal(len(observed.values))
            assert _doubts.other_noise(observed, residual, 1.0, 1) == ()


def test_a_table_without_noise_has_no_other_noise():
    """The noise is then the smallest that is learned, and no column reaches it."""
    observed = as_observed(np.random.default_rng(0).standard_normal((30, 8)))
    residual = 0.1 * np.random.default_rng(1).standard_t(2, len(observed.values))
    assert _doubts.other_noise(observed, residual, 1.0, 1) == ()
    assert _doubts.other_noise(observed, residual, 0.1, 1) != ()  # heavy tails


def test_entries_that_are_missing_because_they_are_large_are_mentioned():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40))
    uniform = rng.random(truth.shape)
    by_value = uniform < 1 / (1 + np.exp(-2 * truth))
    (said,) = map(str, _doubts.selection(as_observed(np.where(by_value, np.nan, truth)), truth))
    assert "larger" in said
    (said,) = map(str, _doubts.selection(as_observed(np.where(~by_value, np.nan, truth)), truth))
    assert "smaller" in said
    # Gaps that depend on nothing, on rows and columns, or that are a block, say nothing.
    often = 0.2 + 0.6 * np.linspace(0, 1, 60)[:, None] * np.linspace(1, 0.5, 40)[None]
    block = (np.arange(60)[:, None] >= 30) & (np.arange(40)[None] >= 20)
    for gaps in (uniform < 0.4, uniform < often, block, np.zeros_like(block)):
        assert _doubts.selection(as_observed(np.where(gaps, np.nan, truth)), truth) == ()


def test_draws_are_paired_with_the_theta_of_their_step():
    # 7 does not divide 100: the numbers of the steps cannot be had from the number of draws alone.
    result = pipla.run(
        pipla.Model(lambda theta, x, data: 0.5 * jnp.sum((x - theta) ** 2)),
        pipla.PGD(0.1),
        theta=jnp.zeros(()),
        particles=jnp.zeros((2, 1)),
        num_steps=100,
        burn_in=33,
        key=jax.random.key(0),
        save=pipla.Save(moments_every=None, particles_every=7),
        check=False,
    )
    steps, late = saved_steps(result)
    assert len(steps) == len(result.saved_particles)
    np.testing.assert_array_equal(steps[:2], [7, 14])
    np.testing.assert_array_equal(steps[late][[0, -1]], [35, 98])


@pytest.mark.parametrize(
    "observed", [[[1.0, np.nan, 3.0]], [[1.0], [np.nan], [3.0]], [[2.0, 2.0], [np.nan, 2.0]]]
)
def test_without_a_rank_the_mean_is_used(observed):
    observed = np.array(observed)
    found = complete(observed)
    assert found.rank == 0
    assert "mean" in str(found.findings[0])
    filled = found.fill(observed)
    np.testing.assert_allclose(filled[np.isnan(observed)], 2.0, atol=0.2)


def test_the_mean_of_draws_is_one_product():
    rng = np.random.default_rng(0)
    draws = FactorDraws(
        np.ones(7), rng.normal(size=7), rng.normal(size=(7, 4, 3)), rng.normal(size=(7, 5, 3))
    )
    np.testing.assert_allclose(draws.mean(), draws.block(slice(None)).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        draws.entries(np.array([3]), np.array([2]))[:, 0], draws.block(slice(3, 4))[:, 0, 2]
    )


def test_the_papers_prior_prints_no_estimate_of_the_noise():
    _, observed = low_rank(1)
    found = complete(observed, prior="nuclear", noise=0.5, num_steps=30, num_particles=2)
    assert found.noise_source == "given"
    assert found.noise_mcse is None
    assert "given" in repr(found)
    assert found.strength > 0
    assert found.fill(observed).shape == SHAPE
    with pytest.raises(ValueError, match="prior='nuclear'"):
        found.fill(observed[:3])


def test_one_observation_is_enough_for_a_nuclear_norm():
    observed = np.full((3, 2), np.nan)
    observed[1, 1] = 4.0  # it has no spread: its size is the scale of the noise
    found = complete(observed, prior="nuclear", num_steps=4, num_particles=2)
    assert found.noise > 0
    assert found.noise_source == "held out"
    assert np.isfinite(found.mean()).all()


@pytest.mark.parametrize(
    ("observed", "options", "word"),
    [
        (np.full((3, 3), np.nan), {}, "missing"),
        ([[1.0, np.inf], [2.0, 3.0]], {}, "infinite"),
        ([1.0, 2.0], {}, "matrix"),
        (np.ones((3, 3)), {"prior": "magic"}, "prior"),
        (np.ones((3, 3)), {"noise": 1.0}, "noise"),
        (np.ones((3, 3)), {"max_rank": 0}, "max_rank"),
        (Triplets([0, 1], [0, 1], [1.0]), {}, "rows"),
        (Triplets([0, 5], [0, 1], [1.0, 2.0], (3, 3)), {}, "shape"),
        (Triplets([0.5], [0], [1.0]), {}, "rows"),
    ],
)
def test_what_cannot_be_completed_is_named(observed, options, word):
    with pytest.raises(ValueError, match=word):
        complete(observed, **options)


# The estimator. #

#: Each of these fits a table of another shape, which is a program to compile: 2 to 3 s each. They
#: pass, and are left out of the suite for their time alone.
LEFT_OUT = {
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_overwrite_params",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_positive_only_tag_during_fit",
    "check_array_api_input",  # skips itself, unless SCIPY_ARRAY_API is set
}
CHECKS = [
    (estimator, check)
    for estimator, check in estimator_checks_generator(
        LowRankCompletion(num_steps=3, max_rank=1, biases=False)
    )
    if check.func.__name__ not in LEFT_OUT
]


@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=[check.func.__name__ for _, check in CHECKS]
)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


def test_the_estimator_completes_new_rows():
    truth, observed = low_rank(2, new_rows=4)
    model = LowRankCompletion(max_rank=3).fit(observed[:-4])
    filled = model.transform(observed[-4:])
    missing = np.isnan(observed[-4:])
    assert np.mean((filled - truth[-4:])[missing] ** 2) < 0.6 * np.var(truth[-4:][missing])
    assert model.n_features_in_ == SHAPE[1]
    assert len(model.strength_) == model.rank_
    low, high = model.predict_interval(0.9, [0], [1])
    assert low < high
    assert model.predict_entries([0], [1]).shape == (1,)


def interrupted_after(steps):
    def ctrl_c(view):
        if view.step >= steps:
            raise KeyboardInterrupt

    return [ctrl_c]


@pytest.mark.parametrize("prior", ["factors", "nuclear"])
def test_ctrl_c_keeps_the_draws_after_burn_in(prior):
    rng = np.random.default_rng(0)
    table = rng.standard_normal((15, 1)) @ rng.standard_normal((1, 10))
    seen = np.where(rng.random(table.shape) < 0.7, table, np.nan)
    options = {"prior": prior, "noise": 0.1} if prior == "nuclear" else {"max_rank": 2}
    with pytest.raises(KeyboardInterrupt):
        complete(seen, num_steps=90, callbacks=interrupted_after(1), **options)
    late = pipla.hooks.Evaluate(lambda theta, x: None, every=70)  # a chunk ends there
    with pytest.warns(pipla.ConvergenceWarning, match="interrupted after"):
        found = complete(seen, num_steps=90, callbacks=[late, *interrupted_after(60)], **options)
    assert found.status is Status.INTERRUPTED
    assert found.result.num_steps < 90
    assert "interrupted" in str(found.findings[0])
    assert np.all(np.isfinite(found.mean()))
    with pytest.raises(RuntimeError, match="before there was a draw"):
        complete(seen, num_steps=90, callbacks=[lambda view: True], **options)
