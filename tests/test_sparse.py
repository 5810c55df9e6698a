"""Sparse matrices: products, derivatives, transformations and conversions against dense ones."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse as jax_sparse

import pipla
from pipla._ffi import ffi
from pipla.operators import Sparse

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(5)


def random_matrix(rows, columns, density=0.2):
    return scipy.sparse.random_array((rows, columns), density=density, rng=RNG, format="csr")


SHAPES = [(40, 7), (7, 40), (1, 5), (5, 1), (17, 16), (33, 3)]


@pytest.fixture(params=["kernel", "XLA"])
def form(request, monkeypatch):
    """Both forms of the product."""
    if request.param == "XLA":
        monkeypatch.setattr(ffi, "target", lambda module, dtype: None)
        jax.clear_caches()
        yield request.param
        jax.clear_caches()
    else:
        pytest.importorskip("numba")
        yield request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_scipy(shape, dtype, form):
    matrix = random_matrix(*shape)
    operator = Sparse(matrix)
    x = RNG.normal(size=(3, shape[1])).astype(dtype)
    y = RNG.normal(size=(3, shape[0])).astype(dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    many = jax.jit(jax.vmap(operator.apply))(jnp.asarray(x))
    back = jax.jit(jax.vmap(operator.adjoint))(jnp.asarray(y))
    assert many.dtype == back.dtype == dtype
    np.testing.assert_allclose(many, (matrix @ x.T).T, atol=tolerance)
    np.testing.assert_allclose(back, (matrix.T @ y.T).T, atol=tolerance)
    np.testing.assert_allclose(operator.apply(jnp.asarray(x[0])), matrix @ x[0], atol=tolerance)


TRANSFORMS = {
    "gradient": jax.grad,
    "hessian": jax.hessian,
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f)),
    "linearised": lambda f: lambda x: jax.linearize(jax.grad(f), x)[1](jnp.ones_like(x)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_derivatives_are_those_of_the_dense_product(transform, form):
    matrix = random_matrix(20, 6)
    operator, dense = Sparse(matrix), jnp.asarray(matrix.toarray())
    x = jnp.asarray(RNG.normal(size=(2, 3, 6)))
    found = transform(lambda x: jnp.sum(jnp.sin(operator.apply(x)) ** 2))
    expected = transform(lambda x: jnp.sum(jnp.sin(dense @ x) ** 2))
    for wrap in (lambda f: f(x[0, 0]), lambda f: jax.jit(jax.vmap(jax.vmap(f)))(x)):
        np.testing.assert_allclose(wrap(found), wrap(expected), atol=1e-10)


def test_several_matrices_may_be_mapped_over():
    matrices = [Sparse(scipy.sparse.csr_array(m)) for m in RNG.normal(size=(2, 4, 3))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *matrices)
    x = jnp.asarray(RNG.normal(size=(2, 5, 3)))
    many = jax.vmap(jax.vmap(Sparse.apply, in_axes=(None, 0)))(stacked, x)
    for one, matrix, given in zip(many, matrices, x, strict=True):
        np.testing.assert_allclose(one, jax.vmap(matrix.apply)(given), atol=1e-12)


@pytest.mark.parametrize(
    "convert",
    [
        scipy.sparse.csr_matrix,
        scipy.sparse.csc_array,
        scipy.sparse.coo_array,
        scipy.sparse.dok_array,
        jax_sparse.BCOO.from_scipy_sparse,
        jax_sparse.BCSR.from_scipy_sparse,
        lambda m: jax_sparse.BCOO.fromdense(jnp.asarray(m.toarray()), nse=m.nnz + 4),  # padded
    ],
    ids=["csr_matrix", "csc", "coo", "dok", "BCOO", "BCSR", "padded"],
)
def test_matrices_of_scipy_and_jax_are_taken(convert):
    matrix = random_matrix(9, 6)
    operator = Sparse(convert(matrix))
    dense = jax.vmap(operator.apply)(jnp.eye(6)).T
    np.testing.assert_allclose(dense, matrix.toarray(), atol=1e-12)


def test_entries_that_occur_twice_are_added_and_the_given_matrix_is_left_alone():
    matrix = scipy.sparse.csr_array(([1.0, 2.0, 3.0], [1, 1, 0], [0, 3]), shape=(1, 2))
    operator = Sparse(matrix)
    np.testing.assert_allclose(operator.apply(jnp.asarray([1.0, 1.0])), [6.0])
    assert operator.values.size == 2
    assert matrix.nnz == 3


def test_an_empty_row_and_an_empty_matrix_give_zeros(form):
    operator = Sparse(scipy.sparse.csr_array((4, 3)))
    np.testing.assert_array_equal(operator.apply(jnp.ones(3)), np.zeros(4))
    np.testing.assert_array_equal(operator.adjoint(jnp.ones(4)), np.zeros(3))


def test_a_gaussian_likelihood_takes_it():
    matrix = random_matrix(12, 4, 0.5)
    y = RNG.normal(size=12)
    sparse = pipla.likelihoods.Gaussian(Sparse(matrix), y, 0.5)
    dense = pipla.likelihoods.Gaussian(pipla.operators.Dense(matrix.toarray()), y, 0.5)
    x = jnp.asarray(RNG.normal(size=4))
    np.testing.assert_allclose(
        jax.grad(lambda x: sparse(None, x))(x), jax.grad(lambda x: dense(None, x))(x), atol=1e-10
    )


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
import jax.numpy as jnp, scipy.sparse
from pipla.operators import Sparse
print(float(Sparse(scipy.sparse.eye_array(3).tocsr() * 2).apply(jnp.ones(3)).sum()))
"""


def test_without_numba_xla_does_it():
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["6.0"]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Sparse(np.eye(3)), TypeError, "matrix must be a sparse matrix.*Dense"),
        (lambda: Sparse(scipy.sparse.eye_array(3) * 1j), TypeError, "matrix must hold real"),
        (lambda: Sparse(scipy.sparse.eye_array(3) * np.nan), ValueError, "matrix has 3 non-finite"),
        (lambda: Sparse(scipy.sparse.csr_array((0, 3))), ValueError, "matrix must have two axes"),
        (
            lambda: Sparse(jax_sparse.BCOO.fromdense(jnp.ones((2, 3, 3)), n_batch=1)),
            ValueError,
            "matrix must have two sparse axes",
        ),
        (lambda: Sparse(random_matrix(4, 3)).apply(jnp.ones(4)), ValueError, r"x must have shape"),
        (lambda: Sparse(random_matrix(4, 3)).adjoint(jnp.ones(3)), ValueError, "y must have"),
    ],
)
def test_bad_matrices_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()
