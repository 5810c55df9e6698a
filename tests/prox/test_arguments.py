"""Bad arguments are refused with their name, what was given and what is expected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipla import prox

BAD = [
    (lambda: prox.LaplaceLocation(scale=-1.0), "scale must be positive", "-1.0"),
    (lambda: prox.LaplaceLocation(scale=np.nan), "scale must be positive", "nan"),
    (lambda: prox.LaplaceLocation(scale=jnp.ones(3)), "scale must be a single number", r"\(3,\)"),
    (
        lambda: prox.LaplaceLocation(approximation="exact"),
        "approximation must be one of",
        "'exact'",
    ),
    (lambda: prox.LaplaceLocation(sweeps=0), "sweeps must be at least 1", "0"),
    (lambda: prox.GaussianLocation(scale=0.0), "scale must be positive", "0.0"),
    (lambda: prox.LaplaceScale(approximation="iterative"), "approximation must be one of", "iter"),
    (lambda: prox.NuclearStrength(approximation="one-step"), "approximation must be one of", "one"),
    (lambda: prox.NuclearStrength(normalised=True, approximation="published"), "published", "only"),
    (lambda: prox.UniformBox(approximation=True), "approximation must be one of", "True"),
    (lambda: prox.HardTanh(approximation="relu"), "approximation must be one of", "'relu'"),
    (lambda: prox.Strength(prox.L1(), rate=0.0), "rate must be finite and not 0", "0.0"),
    (lambda: prox.Strength(prox.L1(), degrees=-2), "degrees must be positive", "-2"),
    (lambda: prox.Strength(prox.L1(), tolerance=0.0), "tolerance must be positive", "0.0"),
    (lambda: prox.TotalVariation(tolerance=-1e-3), "tolerance must be positive", "-0.001"),
    (lambda: prox.TotalVariation(max_iterations=0), "max_iterations must be at least 1", "0"),
    (lambda: prox.L1(0.0), "weight must be positive", "0.0"),
    (lambda: prox.ElasticNet(-1.0, 1.0), "l1 must be 0 or positive", "-1.0"),
    (lambda: prox.Simplex(0.0), "total must be positive", "0.0"),
    (lambda: prox.Box(1.0, 0.0), "lower must not exceed upper", "1.0"),
    (lambda: prox.Box(jnp.zeros(2), jnp.zeros(3)), "arrays of one shape", r"\(2,\)"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_hyperparameters_are_refused(index):
    make, message, given = BAD[index]
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert error.match(given)


def test_a_strength_needs_a_penalty_on_x_alone():
    for bad in (prox.LaplaceLocation(), "l1", prox.L1):
        with pytest.raises(TypeError, match="regulariser must be a term in x alone"):
            prox.Strength(bad)


def test_shapes_of_x_are_checked():
    with pytest.raises(ValueError, match=r"lower must be a number or have the shape of x.*\(2,\)"):
        prox.Box(jnp.zeros(2), 1.0).value(None, jnp.zeros(3))
    with pytest.raises(ValueError, match=r"at least two axes.*\(3,\)"):
        prox.NuclearNorm().value(None, jnp.zeros(3))


def test_numbers_are_leaves_and_choices_are_static():
    term = prox.LaplaceLocation(scale=2)
    (leaf,) = jax.tree.leaves(term)
    assert leaf.dtype == jnp.float64
    assert not leaf.weak_type


def test_a_new_number_compiles_nothing():
    traces = []

    @jax.jit
    def solve(term, x):
        traces.append(term)
        return term.prox(0.1, x, 0.1, 0.1)

    for scale in (1.0, 2, np.float64(0.3), jnp.asarray(0.5)):
        solve(prox.LaplaceLocation(scale), jnp.ones(3))
    assert len(traces) == 1
    solve(prox.LaplaceLocation(approximation="published"), jnp.ones(3))
    assert len(traces) == 2


def test_terms_can_be_built_inside_a_transformation():
    x = jnp.array([1.0, -3.0])
    scales = jnp.array([0.5, 2.0])
    batched = jax.vmap(lambda s: prox.LaplaceLocation(s).prox(0.0, x, 0.1, 0.1)[0])(scales)
    single = [prox.LaplaceLocation(float(s)).prox(0.0, x, 0.1, 0.1)[0] for s in scales]
    np.testing.assert_allclose(batched, single)


def test_the_envelope_is_differentiable_in_the_numbers_of_the_term():
    x = jnp.array([1.0, -3.0, 0.2])

    def envelope(scale):
        return prox.LaplaceLocation(scale).envelope(0.1, x, 0.05, 0.1)

    difference = (envelope(1.3 + 1e-6) - envelope(1.3 - 1e-6)) / 2e-6
    assert float(jax.grad(envelope)(1.3)) == pytest.approx(float(difference), rel=1e-6)


BAD_OPERANDS = {
    "negative lam_x": (lambda: prox.L1().prox(None, X, 0.0, -1.0), ValueError, "lam_x must be 0"),
    "NaN": (lambda: prox.L1().prox(None, X, 0.0, np.nan), ValueError, "lam_x must be 0"),
    "negative lam_theta": (
        lambda: prox.LaplaceLocation().prox(0.0, X, -0.1, 0.1),
        ValueError,
        "lam_theta must be 0",
    ),
    "pinned x": (
        lambda: prox.LaplaceLocation().prox(0.0, X, 0.1, 0.0),
        ValueError,
        "lam_x must be positive where lam_theta is",
    ),
    "several": (
        lambda: prox.LaplaceLocation().prox(0.0, X, 0.1, jnp.ones(3)),
        ValueError,
        "lam_x must be a single number",
    ),
    "complex theta": (
        lambda: prox.LaplaceLocation().prox(jnp.asarray(1j), X, 0.1, 0.1),
        TypeError,
        "real theta",
    ),
    "no elements": (lambda: prox.Simplex().value(None, jnp.zeros(0)), ValueError, "with elements"),
    "half an iteration": (
        lambda: prox.TotalVariation(max_iterations=2.5),
        TypeError,
        "max_iterations must be an integer, got 2.5",
    ),
    "complex weight": (lambda: prox.L1(1j), TypeError, "real numbers"),
    "text": (lambda: prox.L1("a"), TypeError, "real numbers"),
    "sum with a number": (lambda: prox.L1() + 3, TypeError, "unsupported operand"),
    "shift of another shape": (
        lambda: prox.L1().translate(jnp.ones((3, 1))).value(None, X),
        ValueError,
        r"shift must be a number or have the shape of x.*\(3, 1\)",
    ),
    "text as a smoothing": (
        lambda: prox.L1().prox(None, X, None, "0.5"),
        TypeError,
        "lam_x must be an array of numbers, got '0.5'",
    ),
    "no smoothing": (
        lambda: prox.L1().prox(None, X, None, None),
        TypeError,
        "lam_x must be an array of numbers, got None",
    ),
    "complex smoothing": (
        lambda: prox.L1().envelope(None, X, None, 0.1j),
        TypeError,
        "lam_x must be a real number",
    ),
    "a smoothing of another structure": (
        lambda: prox.L1().envelope(None, X, None, {"a": 0.1}),
        ValueError,
        "lam_x must be a number or a pytree of numbers of the structure",
    ),
    "objects in x": (
        lambda: prox.L1().envelope(None, np.array([1.0, None]), None, 0.1),
        TypeError,
        "x must be an array of numbers",
    ),
    "an axis that x does not have": (
        lambda: prox.GroupLasso(axis=1).value(None, X),
        ValueError,
        r"axis must name one or more different axes of x, got \(1,\)",
    ),
    "half isotropic": (
        lambda: prox.TotalVariation(isotropic=0.5),
        TypeError,
        "isotropic must be True or False, got 0.5",
    ),
    "half isotropic strength": (
        lambda: prox.TVStrength(isotropic=0.5),
        TypeError,
        "isotropic must be True or False, got 0.5",
    ),
    "not a switch": (lambda: prox.TotalVariation(native=1), TypeError, "native must be True"),
    "normalised by an object": (
        lambda: prox.Strength(prox.L1(), normalised=object()),
        TypeError,
        "normalised must be True or False",
    ),
    "an address that is an array": (
        lambda: prox.L1().on(x=np.ones(2)),
        TypeError,
        "x must be the name or the index of a part",
    ),
    "a sum with a number": (
        lambda: prox.separable_sum(prox.L1(), 3),
        TypeError,
        "terms must be terms of pipla.prox, got 3",
    ),
    "a sum of a list": (lambda: prox.Sum([1]), TypeError, "terms must be a tuple of terms"),
    "scaled number": (lambda: prox.Scaled(3, 1.0), TypeError, "term must be a term of pipla.prox"),
    "text as a shift": (
        lambda: prox.L1().translate("a"),
        TypeError,
        "shift must be an array of numbers",
    ),
    "a time unit of an integer": (
        lambda: prox.L1().time_unit(None, 1),
        TypeError,
        "needs a floating-point x",
    ),
    "another warm start": (
        lambda: prox.TotalVariation().solve(None, X, None, 0.1, 0),
        ValueError,
        "warm must be what `warm_start",
    ),
    "another warm start of a strength": (
        lambda: prox.TVStrength().solve(0.1, X, 0.1, 0.1, jnp.ones(3)),
        ValueError,
        "warm must be what `warm_start",
    ),
    "another warm start of a sum": (
        lambda: (prox.L1().on(x="a") + prox.L1().on(x="b")).solve(
            None, {"a": X, "b": X}, None, 0.1, None
        ),
        ValueError,
        "warm must be a tuple",
    ),
    "particles without an axis": (
        lambda: prox.LaplaceScale().closed_form(0.0, 1.0),
        ValueError,
        "particles must have a leading axis",
    ),
    "a smoothing without the part": (
        lambda: prox.L1().on(x="a").prox(None, {"a": X}, 0.0, {"b": 0.1}),
        ValueError,
        "lam_x must be a number or have one for each part",
    ),
}
X = jnp.array([1.0, -3.0, 0.2])


@pytest.mark.parametrize("name", BAD_OPERANDS)
def test_bad_operands_are_refused(name):
    call, kind, message = BAD_OPERANDS[name]
    with pytest.raises(kind, match=message):
        call()


def test_terms_have_a_hash_by_their_numbers():
    assert hash(prox.L1(2.0)) == hash(prox.L1(2.0))
    assert hash(prox.L1(2.0)) != hash(prox.L1(3.0))
    first, second = (jax.jit(prox.L1(weight).prox) for weight in (1.0, 2.0))
    assert first(None, X, 0.0, 0.1)[1][0] != second(None, X, 0.0, 0.1)[1][0]
    with pytest.raises(TypeError, match="L1 has numbers that are being traced"):
        jax.jit(lambda weight: hash(prox.L1(weight)))(1.0)


def test_simplex_value_has_a_stated_tolerance():
    term = prox.Simplex()
    assert float(term.value(None, jnp.array([0.25, 0.75]))) == 0
    assert float(term.value(None, jnp.array([0.25, 0.7500001]))) == np.inf
    assert float(term.value(None, jnp.array([-1e-9, 1.0]))) == np.inf
    big = 1e6 + np.random.default_rng(0).normal(size=1000)
    for dtype in (jnp.float32, jnp.float64):
        _, u = term.prox(None, jnp.asarray(big, dtype), 0.0, 1.0)
        assert float(term.value(None, u)) == 0


@pytest.mark.parametrize("lam", [0.5, 2.0, 4.0, 9.0])
def test_hard_tanh_switches_where_both_minimisers_cost_the_same(lam):
    switch = 1 + lam / 2 if lam <= 4 else 2 * np.sqrt(lam) - 1
    below, above = prox.HardTanh().prox(None, jnp.array([switch - 1e-9, switch + 1e-9]), 0.0, lam)[
        1
    ]
    assert float(below) == pytest.approx(max(switch - lam, -1), abs=1e-8)
    assert float(above) == pytest.approx(switch, abs=1e-8)
    cost = np.clip(below, -1, 1) + (below - switch) ** 2 / (2 * lam)
    assert float(cost) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("term", [prox.NuclearNorm(), prox.GroupLasso()])
def test_a_number_has_no_axes_to_take_a_time_unit_along(term):
    with pytest.raises(ValueError, match=r"axes|axis"):
        term.time_unit(jnp.zeros(()), 0.5)
