"""The factor likelihood and its Gibbs moves, against sums written out and exact Gaussians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import pipla
from pipla.algorithms import BlockGibbs
from pipla.models.likelihoods import Factors, _entries
from pipla.models.likelihoods._entries import _round_up

SHAPE, RANK = (5, 4), 2
#: Entry (0, 1) is observed twice, row 3 and column 2 never.
ROWS = np.array([0, 0, 0, 1, 1, 2, 2, 4, 4, 4])
COLUMNS = np.array([0, 1, 1, 0, 3, 1, 3, 0, 1, 3])


@pytest.fixture(
    scope="module",
    params=[(True, "table"), (True, "lists"), (False, "table")],
    ids=["biases-table", "biases-lists", "plain-table"],
)
def case(request):
    """A likelihood, a theta and an x that nothing is special about."""
    rng = np.random.default_rng(3)
    biases, arrangement = request.param
    width = RANK + biases
    theta = {"mean": 0.3, "noise": -0.4, "scale": np.array([0.2, -0.5])}
    if biases:
        theta |= {"row_scale": -0.3, "column_scale": 0.1}
    x = {"rows": rng.normal(size=(5, width)), "columns": rng.normal(size=(4, width))}
    values = rng.normal(size=ROWS.size)
    likelihood = arranged_as(arrangement, ROWS, COLUMNS, values, SHAPE, biases=biases)
    return likelihood, jax.tree.map(jnp.asarray, theta), jax.tree.map(jnp.asarray, x), values


def arranged_as(arrangement, *given, **options):
    """The likelihood with a table or with lists of its observations, whatever their number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_entries, "TABLE_FROM", 0.0 if arrangement == "table" else np.inf)
        likelihood = Factors(*given, **options)
    assert type(likelihood.observed).__name__.lower() == arrangement
    return likelihood


def compiled(method, *arguments):
    """One program instead of one per operation."""
    return jax.jit(lambda *given: method(*given))(*arguments)


def normal(value, mean, log_sd):
    return -stats.norm.logpdf(value, mean, np.exp(log_sd)) - 0.5 * np.log(2 * np.pi)


def by_hand(theta, x, values, biases):
    """Minus the log of the joint density, term by term."""
    total = 0.0
    for i, j, y in zip(ROWS, COLUMNS, values, strict=True):
        u, v = np.asarray(x["rows"][i]), np.asarray(x["columns"][j])
        entry = theta["mean"] + u[:RANK] @ v[:RANK] + (u[-1] + v[-1] if biases else 0)
        total += normal(y, entry, theta["noise"])
    for side, bias in (("rows", "row_scale"), ("columns", "column_scale")):
        scales = [*theta["scale"], *([theta[bias]] if biases else [])]
        total += sum(normal(row, 0, np.asarray(scales)).sum() for row in np.asarray(x[side]))
    return float(total)


def test_the_potential_is_the_joint_density(case):
    likelihood, theta, x, values = case
    expected = by_hand(theta, x, values, likelihood.biases)
    np.testing.assert_allclose(compiled(likelihood, theta, x), expected, rtol=1e-12)


def test_padded_lengths_are_at_most_an_eighth_longer():
    for length in range(300):
        padded = _round_up(length)
        assert max(length, 1) <= padded <= max(1.125 * length, 1)
    assert len({_round_up(length) for length in range(129, 257)}) == 8


def mean_and_root(likelihood, theta, x, side):
    pull, root = likelihood.conditional(theta, x, side)
    precision = root @ jnp.swapaxes(root, -1, -2)
    return jnp.linalg.solve(precision, pull[..., None])[..., 0], root


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_the_conditional_is_that_of_the_potential(case, side):
    # The potential is quadratic in one side: its gradient vanishes at the mean, and its Hessian is
    # the precision, block by block and nothing between the blocks.
    likelihood, theta, x, _ = case

    def potential(part):
        return likelihood(theta, {**x, side: part})

    def measured():
        mean, root = mean_and_root(likelihood, theta, x, side)
        return mean, root, jax.grad(potential)(mean), jax.hessian(potential)(mean)

    mean, root, gradient, hessian = map(np.asarray, compiled(measured))
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
    for i in range(len(mean)):
        np.testing.assert_allclose(hessian[i, :, i], root[i] @ root[i].T, rtol=1e-10, atol=1e-12)
        assert np.abs(np.delete(hessian[i], i, axis=1)).max() == 0


def test_a_draw_is_the_mean_and_noise_of_the_right_covariance(case):
    likelihood, theta, x, _ = case
    zeros = jax.tree.map(jnp.zeros_like, x)
    draw = jax.jit(lambda noise: likelihood.gibbs(theta, x, noise)["rows"])
    mean, root = compiled(lambda: mean_and_root(likelihood, theta, x, "rows"))
    np.testing.assert_allclose(draw(zeros), mean, rtol=1e-10)
    # The draw is linear in the noise: the columns of its matrix are draws with unit vectors.
    units = np.eye(mean.shape[1])
    draws = [draw({**zeros, "rows": zeros["rows"].at[4].set(unit)})[4] for unit in units]
    matrix = np.stack(draws, axis=1) - np.asarray(mean)[4][:, None]
    np.testing.assert_allclose(matrix @ matrix.T, np.linalg.inv(root[4] @ root[4].T), rtol=1e-9)


def test_the_closed_form_is_the_best_theta(case):
    likelihood, theta, x, _ = case
    particles = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.3 * leaf]), x)

    def mean_potential(theta):
        return jnp.mean(jax.vmap(lambda x: likelihood(theta, x))(particles))

    # The mean and the noise are set together, the scales each on their own: all gradients vanish.
    best = compiled(likelihood.closed_form, theta, particles)
    for leaf in jax.tree.leaves(jax.jit(jax.grad(mean_potential))(best)):
        np.testing.assert_allclose(leaf, 0, atol=1e-10)


def test_tables_and_lists_agree():
    # On the interwoven move and the closed form, which sum over all observations, some repeated.
    rng = np.random.default_rng(0)
    rows, columns, values = rng.integers(0, 9, 60), rng.integers(0, 7, 60), rng.normal(size=60)
    theta = {"mean": 0.3, "noise": -0.4, "scale": [0.2, -0.5], "row_scale": 0, "column_scale": 0}
    theta = {name: jnp.asarray(value, float) for name, value in theta.items()}
    x = {"rows": rng.normal(size=(2, 9, 3)), "columns": rng.normal(size=(2, 7, 3))}
    x = jax.tree.map(jnp.asarray, x)
    found = []
    for arrangement in ("table", "lists"):
        likelihood = arranged_as(arrangement, rows, columns, values, (9, 7))
        moved = compiled(likelihood.interwoven, theta, x)
        found.append((moved, compiled(likelihood.closed_form, theta, x)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), *found)


def test_the_interwoven_move_keeps_what_it_does_not_learn(case):
    # In non-centred coordinates x/scale stays, and so do the entries, up to the weights.
    likelihood, theta, x, _ = case
    particles = jax.tree.map(lambda leaf: leaf[None], x)
    moved, after = compiled(likelihood.interwoven, theta, particles)
    for side in ("rows", "columns"):
        old = np.asarray(x[side])[:, :RANK] * np.exp(-theta["scale"])
        new = np.asarray(after[side])[0, :, :RANK] * np.exp(-moved["scale"])
        np.testing.assert_allclose(new, old, rtol=1e-12)
    if likelihood.biases:
        for side in ("rows", "columns"):
            bias = np.asarray(after[side])[0, :, -1]
            np.testing.assert_allclose(bias.mean(), 0, atol=1e-12)
            np.testing.assert_allclose(np.diff(bias), np.diff(x[side][:, -1]), rtol=1e-9)
        total = x["rows"][:, -1].mean() + x["columns"][:, -1].mean()
        np.testing.assert_allclose(moved["mean"], theta["mean"] + total, rtol=1e-12)


def test_the_interwoven_move_is_downhill(case):
    # Weights too large by 20 % everywhere: data without noise pull them back.
    likelihood, theta, x, _ = case
    entries = likelihood.entries(theta, x, jnp.asarray(ROWS), jnp.asarray(COLUMNS))
    exact = Factors(ROWS, COLUMNS, entries, SHAPE, biases=likelihood.biases)
    theta = {**theta, "noise": jnp.asarray(-3.0)}
    large = {side: leaf.at[:, :RANK].multiply(np.sqrt(1.2)) for side, leaf in x.items()}
    moved, _ = compiled(exact.interwoven, theta, jax.tree.map(lambda leaf: leaf[None], large))
    change = np.exp(2 * (moved["scale"] - theta["scale"]))
    # Half of a Newton step from 1.2 to 1, as a factor of the weight: 1 - (1 - 1/1.2)/2.
    np.testing.assert_allclose(change, 0.5 + 0.5 / 1.2, atol=2e-2)


def sampler(likelihood, theta, x, steps, **options):
    return pipla.run(
        pipla.Model(likelihood),
        BlockGibbs(**options),
        theta=theta,
        particles=x,
        num_steps=steps,
        burn_in=0,
        key=jax.random.key(1),
        save=pipla.Save(None, 1),
        check=False,
    )


@pytest.mark.slow
def test_the_sampler_samples_the_posterior():
    # One entry: (u, v) on a plane, integrated on a grid. 4000 particles, 25 sweeps.
    y, log_scale, log_noise = 1.5, 0.2, -0.3
    likelihood = Factors([0], [0], [y], (1, 1), biases=False)
    theta = {"mean": 0.0, "scale": [log_scale], "noise": log_noise}
    theta = {name: jnp.asarray(value) for name, value in theta.items()}
    start = {"rows": jnp.ones((4000, 1, 1)), "columns": jnp.ones((4000, 1, 1))}
    result = sampler(likelihood, theta, start, 25, theta_update="frozen")
    entry = (result.particles["rows"] * result.particles["columns"])[:, 0, 0]
    grid = np.linspace(-8, 8, 801)
    u, v = np.meshgrid(grid, grid)
    scale, noise = np.exp(log_scale), np.exp(log_noise)
    weight = np.exp(-(u**2 + v**2) / (2 * scale**2) - (y - u * v) ** 2 / (2 * noise**2))
    weight /= weight.sum()
    mean = float((weight * u * v).sum())
    std = float(np.sqrt((weight * (u * v - mean) ** 2).sum()))
    # Five standard errors: a right sampler fails once in a million.
    assert abs(float(entry.mean()) - mean) < 5 * std / np.sqrt(4000)
    assert abs(float(entry.std()) / std - 1) < 5 * 1.2 / np.sqrt(2 * 4000)


def test_theta_is_the_maximiser_where_it_is_known():
    # Without factors' help (their scale is at its floor) and all observed, rows of one observation
    # each are independent: the noise and the bias cannot be told apart, but their sum can.
    rng = np.random.default_rng(0)
    count, width = 300, 6
    truth = rng.normal(size=(count, 1)) * 2.0
    values = 5.0 + truth + 0.5 * rng.normal(size=(count, width))
    rows, columns = np.indices(values.shape).reshape(2, -1)
    likelihood = Factors(rows, columns, values.ravel(), values.shape)
    small = float(np.log(likelihood.floor))
    theta = {"mean": 5.0, "scale": [small], "row_scale": 0.0, "column_scale": small, "noise": 0.0}
    theta = {name: jnp.asarray(value) for name, value in theta.items()}
    start = {"rows": jnp.zeros((2, count, 2)), "columns": jnp.zeros((2, width, 2))}
    result = sampler(likelihood, theta, start, 150, gain=0.5)
    settled = jax.tree.map(lambda trace: trace[50:].mean(axis=0), result.theta_trace)
    # The maximum of the one-way layout with random effects: analysis of variance.
    within = values - values.mean(axis=1, keepdims=True)
    noise = np.sqrt((within**2).sum() / (count * (width - 1)))
    between = np.sqrt(values.mean(axis=1).var() - noise**2 / width)
    assert abs(np.exp(settled["noise"]) / noise - 1) < 0.02  # it also has columns and a factor
    assert abs(np.exp(settled["row_scale"]) / between - 1) < 0.01
    assert abs(float(settled["mean"]) - values.mean()) < 0.02


# What is refused. #


@pytest.mark.parametrize(
    ("rows", "values", "word"),
    [
        ([0, 9], [1.0, 2.0], "rows"),
        ([0.0, 1.0], [1.0, 2.0], "rows"),
        ([0], [1.0, 2.0], "rows"),
        ([0, 1], [1.0, np.nan], "values"),
        ([], [], "values"),
    ],
)
def test_bad_observations_are_named(rows, values, word):
    with pytest.raises(ValueError, match=word):
        Factors(np.asarray(rows), np.zeros(len(rows), int), values, (3, 3))


def test_other_models_are_refused():
    flat = pipla.Model(lambda theta, x, data: jnp.sum(x**2))
    with pytest.raises(TypeError, match="Gibbs"):
        BlockGibbs().init(flat, jnp.zeros(()), jnp.zeros((2, 3)))
    rough = pipla.Model(lambda theta, x, data: jnp.sum(x**2), pipla.prox.L1())
    with pytest.raises(TypeError, match="non-smooth"):
        BlockGibbs().init(rough, jnp.zeros(()), jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match="gain"):
        BlockGibbs(1.5)
    for odd in (None, "a", [[1.0], [1.0, 2.0]], float("nan"), -1.0, True):
        for name in ("gain", "interweave_after"):
            with pytest.raises((TypeError, ValueError), match=f"{name} must"):
                BlockGibbs(**{name: odd})
