"""The total variation prox: an honest gap, a useful warm start, and the right definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from prox_brute import anisotropic_prox, isotropic_prox, total_variation

from pipla import prox

solve = jax.jit(lambda term, *at: term.solve(None, at[0], 0.0, *at[1:]))
kinds = pytest.mark.parametrize("isotropic", [False, True])


def image(seed=0, shape=(6, 7)):
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(size=shape).cumsum(axis=0), 1) + 0.1 * rng.normal(size=shape)


def start(term, x):
    return term.warm_start(None, jnp.asarray(x))


@kinds
@pytest.mark.parametrize("shape", [(7,), (4, 5), (2, 3, 4)])
def test_value_is_the_definition(shape, isotropic):
    x = image(1, shape)
    value = prox.TotalVariation(0.7, isotropic=isotropic).value(None, jnp.asarray(x))
    assert float(value) == pytest.approx(0.7 * total_variation(x, None, isotropic))


def test_axes_select_what_is_differentiated():
    x = image(2, (5, 6))
    term = prox.TotalVariation(axes=(-1,), tolerance=1e-12, max_iterations=5000)
    assert float(term.value(None, jnp.asarray(x))) == pytest.approx(total_variation(x, (1,)))
    u = solve(term, jnp.asarray(x), 0.3, start(term, x)).x
    rows = [anisotropic_prox(row, 0.3) for row in x]
    np.testing.assert_allclose(u, rows, atol=1e-6)


def test_a_signal_has_only_one_kind():
    x = jnp.asarray(image(3, (20,)))
    first, second = (
        solve(term, x, 0.4, start(term, x)).x
        for term in (
            prox.TotalVariation(isotropic=kind, tolerance=1e-12, max_iterations=9000)
            for kind in (False, True)
        )
    )
    np.testing.assert_allclose(first, second, atol=1e-6)


@kinds
@pytest.mark.parametrize("max_iterations", [5, 200])
@pytest.mark.parametrize("lam", [0.05, 0.5, 5.0])
def test_gap_bounds_the_excess_and_the_error(isotropic, max_iterations, lam):
    weight, x = 0.6, image()
    term = prox.TotalVariation(weight, isotropic=isotropic, max_iterations=max_iterations)
    solution = solve(term, jnp.asarray(x), lam, start(term, x))
    best = isotropic_prox(x, lam * weight) if isotropic else anisotropic_prox(x, lam * weight)

    def objective(u):
        return weight * total_variation(u, None, isotropic) + np.sum((u - x) ** 2) / (2 * lam)

    excess = objective(np.asarray(solution.x)) - objective(best)
    gap = float(solution.gap)
    assert -1e-9 <= excess <= gap + 1e-9
    assert np.sum((solution.x - best) ** 2) / 2 <= lam * gap + 1e-9
    if max_iterations == 200 and lam < 5:
        shift = lam * weight
        assert lam * gap <= 1.01e-4 * x.size * shift**2
        assert np.sqrt(np.mean((solution.x - best) ** 2)) <= np.sqrt(2.02e-4) * shift


@kinds
def test_a_huge_weight_gives_the_mean_and_not_x(isotropic):
    # A tolerance relative to the weight alone would be satisfied at once, by x itself.
    x = image(4)
    term = prox.TotalVariation(1e4, isotropic=isotropic, max_iterations=2000)
    u = solve(term, jnp.asarray(x), 1.0, start(term, x)).x
    assert np.sqrt(np.mean((u - x.mean()) ** 2)) <= 0.02 * x.std()


@kinds
def test_a_constant_stays_and_needs_no_iteration(isotropic):
    term = prox.TotalVariation(isotropic=isotropic)
    x = jnp.full((5, 5), 3.7)
    solution = solve(term, x, 0.5, start(term, x))
    np.testing.assert_array_equal(solution.x, x)
    assert float(solution.gap) == 0


@kinds
def test_a_solved_problem_takes_a_handful_of_iterations(isotropic):
    x = jnp.asarray(image(5, (24, 24)))
    full = prox.TotalVariation(isotropic=isotropic, max_iterations=2000)
    short = prox.TotalVariation(isotropic=isotropic, max_iterations=5)
    enough = 1e-4 * x.size * 1.0**2
    first = solve(full, x, 1.0, start(full, x))
    assert float(first.gap) <= enough
    assert float(solve(short, x, 1.0, first.warm).gap) <= enough
    assert float(solve(short, x, 1.0, start(full, x)).gap) > 100 * enough


@kinds
def test_it_stops_as_soon_as_the_gap_allows(isotropic):
    x = jnp.asarray(image(5, (24, 24)))
    patient, more_patient = (
        prox.TotalVariation(isotropic=isotropic, max_iterations=number) for number in (2000, 4000)
    )
    first = solve(patient, x, 0.3, start(patient, x))
    second = solve(more_patient, x, 0.3, start(patient, x))
    assert float(first.gap) == float(second.gap) > 0
    np.testing.assert_array_equal(first.x, second.x)


@kinds
@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_a_warm_start_saves_iterations_even_when_the_weight_changes(isotropic, factor):
    x = image(5, (24, 24))
    full = prox.TotalVariation(isotropic=isotropic, max_iterations=2000)
    warm = solve(full, jnp.asarray(x), 1.0, start(full, x)).warm
    moved = jnp.asarray(x + 0.02 * np.random.default_rng(1).normal(size=x.shape))
    short = prox.TotalVariation(isotropic=isotropic, max_iterations=5)
    cold_gap = solve(short, moved, factor, start(full, x)).gap
    warm_gap = solve(short, moved, factor, warm).gap
    assert float(warm_gap) < 0.25 * float(cold_gap)


def test_particles_of_a_batch_stop_on_their_own():
    # A hard and an easy problem side by side: the easy one must not be iterated further.
    term = prox.TotalVariation(tolerance=1e-8, max_iterations=3000)
    particles = jnp.asarray(np.stack([image(6), np.zeros((6, 7)), 1e-3 * image(7)]))
    warm = jax.vmap(lambda x: start(term, x))(particles)
    batched = jax.vmap(lambda x, w: solve(term, x, 0.5, w))(particles, warm)
    for i in range(3):
        single = solve(term, particles[i], 0.5, start(term, particles[i]))
        np.testing.assert_allclose(batched.x[i], single.x, atol=1e-12)
        np.testing.assert_allclose(batched.gap[i], single.gap, rtol=1e-6, atol=1e-15)


def test_float32_stops_at_rounding():
    x = jnp.asarray(128 + 50 * image(8, (32, 32)), jnp.float32)
    term = prox.TotalVariation(tolerance=1e-12, max_iterations=100_000)
    solution = solve(term, x, 2.0, start(term, x))  # would not end in reasonable time otherwise
    double = solve(
        prox.TotalVariation(tolerance=1e-9, max_iterations=20_000),
        x.astype(jnp.float64),
        2.0,
        start(term, x.astype(jnp.float64)),
    )
    assert np.sqrt(np.mean((solution.x - double.x.astype(jnp.float32)) ** 2)) < 0.05


def test_bad_axes_are_named():
    x = jnp.zeros((3, 3))
    for axes in ((2,), (), (0, 0), (1, -1)):
        with pytest.raises(ValueError, match=r"axes must name.*\(3, 3\)"):
            prox.TotalVariation(axes=axes).value(None, x)


@pytest.mark.parametrize("name", ["tolerance", "max_iterations", "axes", "isotropic", "native"])
def test_a_dict_that_jax_cannot_sort_is_refused_as_an_option(name):
    with pytest.raises((TypeError, ValueError), match=r"must be"):
        prox.TVStrength(**{name: {1: 0.1, "b": 0.2}})
