"""Operators: adjoints, eigenbases and boundaries against independent implementations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage

from pipla import operators
from pipla.operators import CircularConvolution, Dense, Identity, Mask, Separable, blur, convolution

RNG = np.random.default_rng(0)
SKEWED = np.outer([0.2, 0.5, 0.3], [0.1, 0.6, 0.2, 0.1])
SKEWED_FULL = RNG.uniform(size=(3, 4))

CASES = {
    "identity": (Identity(), (5, 6)),
    "mask": (Mask(RNG.uniform(size=(5, 6)) > 0.3), (5, 6)),
    "circular": (CircularConvolution(SKEWED_FULL, (6, 7)), (6, 7)),
    "circular even": (CircularConvolution(SKEWED_FULL, (5, 8)), (5, 8)),
    "circular colour": (CircularConvolution(SKEWED_FULL, (6, 7, 3), (0, 1)), (6, 7, 3)),
    "circular stack": (CircularConvolution(SKEWED_FULL, (3, 6, 7), (1, 2)), (3, 6, 7)),
    "circular volume": (CircularConvolution(RNG.uniform(size=(2, 3, 2)), (4, 5, 6)), (4, 5, 6)),
    "circular swapped": (CircularConvolution(SKEWED_FULL, (7, 6), (1, 0)), (7, 6)),
    "reflect": (convolution(SKEWED, (6, 7), "reflect"), (6, 7)),
    "renormalised": (convolution(SKEWED, (6, 7), "renormalised"), (6, 7)),
    "separable colour": (convolution(SKEWED, (6, 7, 3), "reflect", (0, 1)), (6, 7, 3)),
    "dense": (Dense(RNG.normal(size=(4, 6))), (6,)),
    "dense image": (Dense(RNG.normal(size=(4, 6)), (2, 3)), (2, 3)),
    "select": (operators.Select(RNG.uniform(size=(5, 6)) > 0.3), (5, 6)),
    "select twice": (operators.Select([1, 4, 4], (2, 3)), (2, 3)),
    "select by axis": (operators.Select((np.array([1, 0]), np.array([2, 0])), (2, 3)), (2, 3)),
    "composed": (
        Mask(RNG.uniform(size=(6, 7)) > 0.3) @ CircularConvolution(SKEWED, (6, 7)),
        (6, 7),
    ),
}
cases = pytest.mark.parametrize(("operator", "shape"), CASES.values(), ids=CASES.keys())


@cases
def test_the_adjoint_is_the_transpose(operator, shape):
    x = RNG.normal(size=shape)
    y = RNG.normal(size=jax.eval_shape(operator.apply, x).shape)
    seen, back = jax.jit(lambda op, x, y: (op.apply(x), op.adjoint(y)))(operator, x, y)
    assert float(np.vdot(seen, y)) == pytest.approx(float(np.vdot(x, back)))


@cases
def test_the_eigenbasis_diagonalises_and_keeps_lengths(operator, shape):
    basis = operator.eigenbasis()
    if basis is None:
        assert isinstance(operator, operators.Composed)
        return
    x, y = RNG.normal(size=(2, *shape))

    @jax.jit
    def calls(operator, basis, x, y):
        coordinates = basis.forward(x)
        root = jnp.sqrt(basis.eigenvalues + 1.0)

        def half(v):
            return basis.inverse(basis.times(root, basis.forward(v)))

        return (
            basis.inverse(coordinates),
            basis.inverse(basis.times(basis.eigenvalues, coordinates)),
            operator.adjoint(operator.apply(x)),
            half(x),
            half(y),
        )

    back, twice, expected, half_x, half_y = map(np.asarray, calls(operator, basis, x, y))
    np.testing.assert_allclose(back, x, atol=1e-12)
    np.testing.assert_allclose(twice, expected, atol=1e-10)
    # White noise stays white: F'F = 1, so a function of the eigenvalues is symmetric.
    assert float(np.vdot(half_x, half_x)) == pytest.approx(float(np.vdot(x, x + twice)))
    assert float(np.vdot(half_x, y)) == pytest.approx(float(np.vdot(x, half_y)))


@cases
def test_operators_are_pytrees_that_jit_and_vmap(operator, shape):
    many = RNG.normal(size=(2, *shape))
    seen = jax.jit(jax.vmap(lambda op, x: op.apply(x), in_axes=(None, 0)))(operator, many)
    for one, x in zip(np.asarray(seen), many, strict=True):
        np.testing.assert_allclose(one, operator.apply(jnp.asarray(x)), atol=1e-12)


def test_a_selection_is_numpy_indexing():
    x, mask = RNG.normal(size=(4, 5)), RNG.uniform(size=(4, 5)) < 0.4
    for which in (mask, np.nonzero(mask), np.flatnonzero(mask)):
        seen = operators.Select(which, (4, 5)).apply(jnp.asarray(x))
        np.testing.assert_array_equal(seen, x[mask])


def test_a_matrix_may_act_on_images():
    matrix, x = RNG.normal(size=(7, 6)), RNG.normal(size=(2, 3))
    operator = Dense(matrix, (2, 3))
    np.testing.assert_allclose(operator.apply(jnp.asarray(x)), matrix @ x.ravel(), atol=1e-12)
    assert operator.adjoint(jnp.ones(7)).shape == (2, 3)


@pytest.mark.parametrize(("boundary", "mode"), [("circular", "wrap"), ("reflect", "reflect")])
@pytest.mark.parametrize(
    "psf", [SKEWED, blur.box(5), blur.gaussian(0.7)], ids=["skewed", "box", "gaussian"]
)
def test_boundaries_are_those_of_scipy(boundary, mode, psf):
    x = RNG.normal(size=(9, 11))
    expected = scipy.ndimage.convolve(x, psf, mode=mode)
    np.testing.assert_allclose(
        convolution(psf, x.shape, boundary).apply(jnp.asarray(x)), expected, atol=1e-12
    )


def test_renormalised_edges_divide_by_the_weight_inside():
    x = RNG.normal(size=(9, 11))
    inside = scipy.ndimage.convolve(np.ones_like(x), blur.box(5), mode="constant")
    expected = scipy.ndimage.convolve(x, blur.box(5), mode="constant") / inside
    operator = convolution(blur.box(5), x.shape, "renormalised")
    np.testing.assert_allclose(operator.apply(jnp.asarray(x)), expected, atol=1e-12)
    np.testing.assert_allclose(operator.apply(jnp.ones(x.shape)), 1.0, atol=1e-12)


def test_a_kernel_as_wide_as_the_image_reflects_more_than_once():
    x = RNG.normal(size=7)
    kernel = RNG.uniform(size=7)
    expected = scipy.ndimage.convolve1d(x, kernel, mode="reflect")
    matrix = blur.blur_matrix(kernel, 7, "reflect")
    np.testing.assert_allclose(matrix @ x, expected, atol=1e-12)


def test_separable_acts_on_the_axes_it_is_told():
    a, b = RNG.normal(size=(4, 4)), RNG.normal(size=(5, 5))
    x = RNG.normal(size=(3, 4, 5))
    seen = Separable((a, b), (1, 2), 3).apply(jnp.asarray(x))
    np.testing.assert_allclose(seen, np.einsum("ij,kl,njl->nik", a, b, x), atol=1e-12)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: convolution(blur.box(9), (5, 20)), ValueError, "larger than the image"),
        (
            lambda: convolution(blur.box(9), (5, 20), "reflect"),
            ValueError,
            "larger than the image",
        ),
        (lambda: convolution(blur.box(3), (9, 9, 3)[:1]), ValueError, "axes"),
        (lambda: convolution(SKEWED_FULL, (9, 9), "reflect"), ValueError, "not a product"),
        (lambda: convolution(SKEWED, (9, 9), "mirror"), ValueError, "boundary"),
        (lambda: Dense(np.ones(3)), ValueError, "matrix"),
        (lambda: blur.box(0), ValueError, "width"),
        (lambda: blur.gaussian(-1.0), ValueError, "std"),
        (lambda: blur.parse("box:x"), ValueError, "box:9"),
        (lambda: blur.parse("gaussian:-2"), ValueError, "gaussian:2"),
        (lambda: blur.parse("gaussian"), ValueError, "its size is missing; .* gaussian:2"),
        (
            lambda: blur.parse("box:99999"),
            ValueError,
            "99999 pixels wide along 2 axes; at most 4096",
        ),
        (lambda: blur.parse("motion"), ValueError, "not understood"),
        (lambda: blur.parse("none.npy"), FileNotFoundError, "none.npy"),
        (lambda: blur.checked(np.array([[1.0, np.nan]])), ValueError, "non-finite"),
        (lambda: blur.checked(np.array([1.0, -1.0])), ValueError, "positive sum"),
        (lambda: blur.checked(np.array(["a"])), TypeError, "psf must be an array of numbers"),
    ],
)
def test_bad_kernels_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Dense("no matrix"), TypeError, "matrix must be an array of numbers"),
        (lambda: Dense([[1.0, np.nan]]), ValueError, "matrix has 1 non-finite"),
        (lambda: Dense(np.eye(4), (2, 3)), ValueError, "4 columns, but an x of shape .2, 3. has 6"),
        (lambda: Dense(np.eye(4), (2.0, 2)), TypeError, "shape must be a tuple of integers"),
        (lambda: operators.Select([0.5], (3,)), TypeError, "which must be booleans or integers"),
        (lambda: operators.Select([0, 3], (3,)), ValueError, "which must lie between 0 and 2"),
        (lambda: operators.Select([-1], (3,)), ValueError, "which must lie between 0 and 2"),
        (lambda: operators.Select([0]), ValueError, "shape, that of x, must be given"),
        (lambda: operators.Select([[0]], (3,)), ValueError, "which must be one vector"),
        (lambda: operators.Select((np.arange(2),), (3, 3)), ValueError, "x has 2 axes"),
        (lambda: operators.Select([True, False], (3,)), ValueError, "which has shape .2,."),
        (lambda: operators.Select([False]), ValueError, "no data are seen"),
        (lambda: Mask([1j]), TypeError, "mask must be an array of real numbers"),
        (lambda: Separable([np.ones(3)]), ValueError, r"matrices must be.*\(3,\)"),
        (lambda: Separable([np.eye(3)] * 2, (0, 0)), ValueError, "axes must be different"),
        (lambda: Separable([np.eye(3)] * 2, (0, 2)), ValueError, "axes must be different"),
        (lambda: Separable([np.eye(3)] * 2, (0,)), ValueError, "axes must have 2 entries"),
        (lambda: Separable([np.eye(3)] * 2, (0, 1.0)), TypeError, "axes must be a tuple of"),
        (lambda: Separable([np.eye(3)] * 2, ndim=1), ValueError, "ndim must be at least 2"),
        (lambda: CircularConvolution([[np.nan]], (3, 3)), ValueError, "psf has 1 non-finite"),
        (lambda: CircularConvolution([["a"]], (3, 3)), TypeError, "psf must be an array"),
        (lambda: CircularConvolution(SKEWED, 7), TypeError, "shape must be a tuple of integers"),
        (lambda: CircularConvolution(SKEWED, (9, 0)), ValueError, "shape must be at least 1"),
        (lambda: operators.WindowMean(4, (9, 9)), ValueError, "width must be odd"),
        (lambda: operators.WindowMean("3", (9, 9)), TypeError, "width must be an integer"),
        (lambda: operators.WindowMean(3, (9,)), ValueError, "shape must be .rows, columns"),
        (lambda: blur.gaussian(np.ones(2)), TypeError, "std must be a single real number"),
    ],
)
def test_bad_arguments_of_operators_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("method", ["apply", "adjoint"])
@pytest.mark.parametrize(
    ("operator", "shape", "expected"),
    [
        (Dense(np.eye(4)), (5,), r"\(4,\)"),
        (Dense(np.eye(4)), (4, 2), r"\(4,\)"),
        (Mask(np.ones((5, 6))), (6, 5), r"\(5, 6\)"),
        (CircularConvolution(SKEWED, (6, 7)), (7, 6), r"\(6, 7\)"),
        (CircularConvolution(SKEWED, (6, 7)), (2, 6, 7), r"\(6, 7\)"),
        (CircularConvolution(SKEWED, (3, 6, 7), (1, 2)), (3, 6, 8), r"\(any, 6, 7\)"),
        (convolution(SKEWED, (6, 7, 3), "reflect", (0, 1)), (6, 6, 3), r"\(6, 7, any\)"),
        (operators.WindowMean(3, (6, 7)), (7, 6), r"\(6, 7\)"),
    ],
)
def test_a_wrong_shape_is_named_also_in_compiled_programs(operator, shape, expected, method):
    name = {"apply": "x", "adjoint": "y"}[method]
    words = rf"{name} must have shape {expected}.*got \({', '.join(map(str, shape))}"
    for call in (getattr(operator, method), jax.jit(lambda v: getattr(operator, method)(v))):
        with pytest.raises(ValueError, match=words):
            call(jnp.zeros(shape))


def test_negative_axes_are_the_same_axes():
    """They were sorted before they were counted from the front, and the kernel transposed."""
    x = jnp.asarray(RNG.normal(size=(7, 7, 7)))
    for axes, same in (((0, -1), (0, 2)), ((-1, 0), (2, 0)), ((-3, -1), (0, 2))):
        for boundary in ("circular", "reflect"):
            one, other = (convolution(SKEWED, x.shape, boundary, each) for each in (axes, same))
            np.testing.assert_array_equal(one.apply(x), other.apply(x))


def test_integers_do_not_round_the_operator():
    """The matrix took the dtype of x: half a pixel was none."""
    halves = np.full((2, 2), 0.5)
    assert Dense(halves).apply(np.array([1, 2])).tolist() == [1.5, 1.5]
    assert Mask(halves).apply(np.ones((2, 2), int)).tolist() == halves.tolist()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Identity().apply("a"), TypeError, "x must be an array of numbers"),
        (lambda: Mask([1.0]).adjoint([1j]), TypeError, "y must be an array of real numbers"),
        (lambda: Dense(np.eye(2)).apply(jnp.ones(2, jnp.float16)), TypeError, "float16; use"),
        (lambda: Mask(np.ones(2)) @ CircularConvolution, TypeError, "unsupported operand"),
        (lambda: operators.Composed(Identity, Identity()), TypeError, "last must be one of"),
        (lambda: Separable(3), TypeError, "matrices must be a list of matrices"),
        (lambda: Separable([np.eye(2)], ndim=10**6), ValueError, "ndim must be at most 32"),
        (lambda: CircularConvolution(SKEWED, (2**31 - 1,) * 2), ValueError, "more than the memory"),
        (lambda: blur.box(3, axes=40), ValueError, "axes must be at most 32"),
        (lambda: blur.gaussian(1e300), ValueError, "blur is too large"),
        (lambda: blur.parse(3), TypeError, "blur must be text"),
        (lambda: blur.separate([[1.0, -1.0]]), ValueError, "not a product"),
        (lambda: blur.blur_matrix(SKEWED, 5, "reflect"), ValueError, "kernel must have one axis"),
    ],
)
def test_odd_operands_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_kernel_that_does_not_sum_to_one_is_scaled_with_a_warning(tmp_path):
    np.save(tmp_path / "psf.npy", np.ones((3, 3)))
    with pytest.warns(UserWarning, match="sums to 9"):
        psf = blur.parse(str(tmp_path / "psf.npy"))
    np.testing.assert_allclose(psf, blur.box(3))


def test_a_file_that_is_no_array_is_refused(tmp_path):
    (tmp_path / "psf.npy").write_text("no array")
    with pytest.raises(ValueError, match="not an array"):
        blur.parse(str(tmp_path / "psf.npy"))
