"""Generalised linear models against NumPy's formulas, finite differences and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

import pipla
from pipla.models.likelihoods import Logistic, Multinomial, Poisson

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(3)
COUNT, SIZE, CLASSES = 40, 5, 3
FEATURES = RNG.normal(size=(COUNT, SIZE)) * (RNG.uniform(size=(COUNT, SIZE)) < 0.7)
WEIGHTS = RNG.uniform(0, 2, COUNT)
OFFSETS = RNG.normal(size=COUNT)
LABELS = RNG.uniform(size=COUNT) < 0.5
KINDS = RNG.integers(0, CLASSES, COUNT)
COUNTS = RNG.poisson(2.0, COUNT)
X = RNG.normal(size=SIZE)
MATRIX = RNG.normal(size=(SIZE, CLASSES))


def logistic(x, features, weights, offsets):
    z = features @ x + offsets
    chance = scipy.special.expit(z)
    value = -np.sum(weights * (scipy.special.xlogy(LABELS, chance) + (~LABELS) * np.log1p(-chance)))
    hessian = (features.T * (weights * chance * (1 - chance))) @ features
    return value, features.T @ (weights * (chance - LABELS)), hessian


def poisson_log(x, features, weights, offsets):
    rate = np.exp(features @ x + offsets)
    value = np.sum(weights * (rate - COUNTS * np.log(rate)))
    return (
        value,
        features.T @ (weights * (rate - COUNTS)),
        (features.T * (weights * rate)) @ features,
    )


def poisson_identity(x, features, weights, offsets):
    rate = features @ x + offsets
    value = np.sum(weights * (rate - scipy.special.xlogy(COUNTS, rate)))
    hessian = (features.T * (weights * COUNTS / rate**2)) @ features
    return value, features.T @ (weights * (1 - COUNTS / rate)), hessian


CASES = {
    "logistic": (lambda f, **o: Logistic(f, LABELS, **o), logistic, FEATURES, X),
    "poisson": (lambda f, **o: Poisson(f, COUNTS, **o), poisson_log, FEATURES, 0.3 * X),
    "identity": (
        lambda f, **o: Poisson(f, COUNTS, "identity", **{"offsets": np.zeros(COUNT), **o}),
        poisson_identity,
        np.abs(FEATURES) + 0.1,
        np.abs(X),
    ),
}
cases = pytest.mark.parametrize(
    ("make", "formula", "features", "x"), CASES.values(), ids=CASES.keys()
)


@cases
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_values_gradients_and_hessians(make, formula, features, x, weighted, sparse):
    weights = WEIGHTS if weighted else np.ones(COUNT)
    offsets = np.abs(OFFSETS) if weighted else np.zeros(COUNT)
    options = {"weights": weights, "offsets": offsets} if weighted else {}
    likelihood = make(scipy.sparse.csr_array(features) if sparse else features, **options)
    value, gradient, hessian = formula(x, features, weights, offsets)

    def potential(x):
        return likelihood(None, x)

    calls = jax.jit(lambda x: (potential(x), jax.grad(potential)(x), jax.hessian(potential)(x)))
    found = calls(jnp.asarray(x))
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found[2], hessian, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_several_classes(reference, sparse):
    offsets = RNG.normal(size=(COUNT, CLASSES))
    features = scipy.sparse.csr_array(FEATURES) if sparse else FEATURES
    likelihood = Multinomial(features, KINDS, reference=reference, weights=WEIGHTS, offsets=offsets)
    x = MATRIX[:, : CLASSES - reference]
    full = np.concatenate([x, np.zeros((SIZE, 1))], axis=1) if reference else x
    logits = FEATURES @ full + offsets
    chance = scipy.special.softmax(logits, axis=1)
    value = -np.sum(WEIGHTS * np.log(chance[np.arange(COUNT), KINDS]))
    gradient = FEATURES.T @ (WEIGHTS[:, None] * (chance - np.eye(CLASSES)[KINDS]))
    found, slope = jax.jit(jax.value_and_grad(lambda x: likelihood(None, x)))(jnp.asarray(x))
    np.testing.assert_allclose(found, value, rtol=1e-12)
    np.testing.assert_allclose(slope, gradient[:, : CLASSES - reference], rtol=1e-9, atol=1e-10)


def test_two_classes_with_a_reference_are_the_logistic_model():
    two = Multinomial(FEATURES, (~LABELS).astype(int), reference=True)
    one = Logistic(FEATURES, LABELS)
    np.testing.assert_allclose(two(None, jnp.asarray(X)[:, None]), one(None, jnp.asarray(X)))


def test_without_a_reference_a_common_shift_changes_nothing():
    likelihood = Multinomial(FEATURES, KINDS)
    shifted = jnp.asarray(MATRIX + X[:, None])
    np.testing.assert_allclose(likelihood(None, jnp.asarray(MATRIX)), likelihood(None, shifted))


# Compiled once: the likelihood is an argument like any other.
value = jax.jit(lambda likelihood, x: likelihood(None, x))
value_of_rows = jax.jit(lambda likelihood, indices, x: likelihood.rows(indices)(None, x))


@cases
@settings(max_examples=10, deadline=None)
@given(drawn=st.lists(st.integers(0, COUNT - 1), min_size=60, max_size=60))
def test_a_weight_is_a_number_of_copies(make, formula, features, x, drawn):
    copies = np.bincount(drawn, minlength=COUNT)  # always 60 rows: one shape, one program
    weighted = make(features, weights=copies)
    rows = value_of_rows(make(features), jnp.asarray(np.repeat(np.arange(COUNT), copies)), x)
    np.testing.assert_allclose(value(weighted, x), rows)


@cases
@settings(max_examples=10, deadline=None)
@given(shift=st.floats(0, 2))
def test_an_offset_is_a_feature_with_a_known_coefficient(make, formula, features, x, shift):
    known = np.linspace(0, 1, COUNT)
    offset = make(features, offsets=shift * known)
    column = make(np.column_stack([features, known]))
    np.testing.assert_allclose(value(offset, x), value(column, np.append(x, shift)))


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(int), 2 * LABELS.astype(int) - 1])
def test_labels_may_be_booleans_or_0_and_1_or_minus_1_and_1(labels):
    expected = Logistic(FEATURES, LABELS.astype(float))(None, jnp.asarray(X))
    assert Logistic(FEATURES, labels)(None, jnp.asarray(X)) == expected


@pytest.mark.parametrize(
    "likelihood",
    [
        Logistic(FEATURES, LABELS, weights=WEIGHTS, offsets=OFFSETS),
        Poisson(FEATURES, COUNTS, weights=WEIGHTS),
        Multinomial(FEATURES, KINDS, offsets=np.tile(OFFSETS[:, None], CLASSES)),
        Logistic(scipy.sparse.csr_array(FEATURES), LABELS, weights=WEIGHTS),
        Multinomial(scipy.sparse.csr_array(FEATURES), KINDS),
    ],
    ids=["logistic", "poisson", "multinomial", "sparse logistic", "sparse multinomial"],
)
def test_rows_add_up_also_inside_compiled_programs(likelihood):
    x = jnp.asarray(MATRIX if isinstance(likelihood, Multinomial) else X)

    @jax.jit
    def part(likelihood, indices):
        return likelihood.rows(indices)(None, x)

    order = RNG.permutation(COUNT).reshape(4, 10)
    total = sum(part(likelihood, jnp.asarray(batch)) for batch in order)
    np.testing.assert_allclose(total, likelihood(None, x))
    assert likelihood.num_rows() == COUNT


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("kind", ["logistic", "multinomial"])
def test_the_stiffness_bounds_the_hessian_everywhere(kind, weights):
    if kind == "logistic":
        likelihood, shape = Logistic(FEATURES, LABELS, weights=weights), (SIZE,)
    else:
        likelihood, shape = Multinomial(FEATURES, KINDS, weights=weights), (SIZE, CLASSES)
    bound = float(likelihood.stiffness(None))
    gram = (FEATURES.T * (1 if weights is None else weights)) @ FEATURES
    factor = 4 if kind == "logistic" else 2
    assert bound == pytest.approx(np.linalg.eigvalsh(gram)[-1] / factor, rel=1e-3)
    hessian_at = jax.jit(jax.hessian(lambda x: likelihood(None, x)))
    for scale in (0.0, 0.3, 1.0, 5.0):
        x = scale * RNG.normal(size=shape)
        hessian = np.reshape(hessian_at(x), (x.size, x.size))
        assert np.linalg.eigvalsh(hessian)[-1] <= bound * (1 + 1e-6)


def test_coefficients_may_be_a_part_of_x_and_the_likelihood_a_part_of_a_function():
    likelihood = Logistic(FEATURES, LABELS, x=("layer", 0))
    x = {"layer": [jnp.asarray(X), jnp.ones(2)]}

    def smooth(theta, x, data):
        return likelihood(theta, x) + theta * jnp.sum(x["layer"][1])

    model = pipla.Model(smooth)
    expected = Logistic(FEATURES, LABELS)(None, jnp.asarray(X)) + 2
    assert float(model.smooth_value(jnp.ones(()), x)) == pytest.approx(float(expected))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_runs_with_it_as_with_a_function(sparse):
    features = scipy.sparse.csr_array(FEATURES) if sparse else FEATURES
    term = pipla.prox.LaplaceLocation()

    def smooth(theta, x, data):
        z = jnp.asarray(FEATURES) @ x
        return jnp.sum(jnp.logaddexp(0.0, z) - jnp.asarray(LABELS, float) * z)

    start = jnp.asarray(np.random.default_rng(0).normal(size=(4, SIZE)))
    results = [
        pipla.run(
            pipla.Model(given, term), pipla.PIPGLA(step_size=0.01), theta=0.0, particles=start,
            num_steps=20, key=jax.random.key(0), check=False,
        )
        for given in (Logistic(features, LABELS), smooth)
    ]  # fmt: skip
    np.testing.assert_allclose(results[0].theta_trace, results[1].theta_trace, rtol=1e-9)


def test_a_closed_form_update_leaves_the_likelihood_out():
    assert not Logistic(FEATURES, LABELS).uses_theta(jnp.zeros(()), jnp.asarray(X))


def test_float32_stays_float32():
    for likelihood in (Logistic(FEATURES, LABELS, weights=WEIGHTS), Poisson(FEATURES, COUNTS)):
        x = jnp.asarray(X, jnp.float32)
        assert likelihood(None, x).dtype == jnp.float32
        assert jax.grad(lambda x, f=likelihood: f(None, x))(x).dtype == jnp.float32


def minimum(likelihood, size, penalty):
    """The minimiser of the likelihood and a quadratic, by Newton's method."""
    x = jnp.zeros(size)

    def potential(x):
        return likelihood(None, x) + penalty / 2 * jnp.sum(x**2)

    def newton(_, x):
        return x - jnp.linalg.solve(jax.hessian(potential)(x), jax.grad(potential)(x))

    return jax.jit(lambda x: jax.lax.fori_loop(0, 30, newton, x))(x)


def test_the_optimum_is_that_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    found = minimum(Logistic(FEATURES, LABELS, weights=WEIGHTS), SIZE, 0.5)
    theirs = linear_model.LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10)
    theirs.fit(FEATURES, LABELS, sample_weight=WEIGHTS)
    np.testing.assert_allclose(found, theirs.coef_[0], atol=1e-5)
    found = minimum(Poisson(FEATURES, COUNTS), SIZE, 0.5 * COUNT)
    theirs = linear_model.PoissonRegressor(alpha=0.5, fit_intercept=False, tol=1e-10)
    np.testing.assert_allclose(found, theirs.fit(FEATURES, COUNTS).coef_, atol=1e-5)


def test_a_negative_rate_is_not_passed_over():
    likelihood = Poisson([[1.0], [1.0]], [0, 3], "identity")
    value, slope = jax.value_and_grad(lambda x: likelihood(None, x))(jnp.asarray([-0.5]))
    assert np.isnan(value)
    assert np.isnan(slope[0])
    empty = Poisson([[1.0]], [0], "identity")
    assert float(jax.grad(lambda x: empty(None, x))(jnp.zeros(1))[0]) == 1.0


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Logistic(FEATURES[0], LABELS), ValueError, "features must have two axes"),
        (lambda: Logistic([["a"]], [1]), TypeError, "features must be an array of numbers"),
        (lambda: Logistic([[1j]], [1]), TypeError, "features must be an array of real"),
        (lambda: Logistic([[np.nan]], [1]), ValueError, "features has 1 non-finite"),
        (lambda: Logistic(np.ones((0, 2)), []), ValueError, "features is empty"),
        (lambda: Logistic(FEATURES, LABELS[:3]), ValueError, r"labels must have shape \(40,\)"),
        (lambda: Logistic(FEATURES, LABELS[:, None]), ValueError, "labels must have shape"),
        (lambda: Logistic(FEATURES, KINDS), ValueError, "labels must be 0 and 1.*Multinomial"),
        (lambda: Logistic([[1.0]], [np.nan]), ValueError, "labels must be 0 and 1"),
        (lambda: Logistic([[1.0]], ["yes"]), TypeError, "labels must be an array of numbers"),
        (lambda: Logistic([[1.0]], [1], weights=[-1.0]), ValueError, "weights must be 0 or"),
        (lambda: Logistic([[1.0]], [1], weights=[0.0]), ValueError, "no data are seen"),
        (lambda: Logistic([[1.0]], [1], weights=1.0), ValueError, "weights must have shape"),
        (lambda: Logistic([[1.0]], [1], offsets=[np.inf]), ValueError, "offsets has 1 non-finite"),
        (lambda: Logistic([[1.0]], [1], offsets=[1.0, 2.0]), ValueError, "offsets must have"),
        (lambda: Poisson([[1.0]], [-1]), ValueError, "counts must be non-negative integers"),
        (lambda: Poisson([[1.0]], [0.5]), ValueError, "counts must be non-negative.*0.5"),
        (lambda: Poisson([[1.0]], [np.inf]), ValueError, "counts must be non-negative"),
        (lambda: Poisson([[1.0]], [1], "logit"), ValueError, "link must be one of"),
        (lambda: Multinomial([[1.0]], [0.5]), ValueError, "labels must be integers"),
        (lambda: Multinomial([[1.0]], [3], 3), ValueError, "labels go up to 3"),
        (lambda: Multinomial([[1.0]], [1], 1), ValueError, "num_classes must be at least 2"),
        (lambda: Multinomial([[1.0]], [1], reference=1), TypeError, "reference must be True"),
        (lambda: Logistic(FEATURES, LABELS)(None, jnp.ones(4)), ValueError, r"x must have shape"),
        (lambda: Logistic(FEATURES, LABELS)(None, {"a": X}), TypeError, "x='name'"),
        (lambda: Logistic(FEATURES, LABELS, x="b")(None, {"a": X}), ValueError, "parts are"),
    ],
)
def test_bad_arguments_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()
