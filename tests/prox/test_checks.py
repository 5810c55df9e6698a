"""The shared checks: conversion to arrays, half precision, integers, resolution."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import _checks, prox

X = jnp.array([1.0, -3.0, 0.2])

NOT_ARRAYS = {
    "key": jax.random.key(0),
    "objects": np.array([object(), None]),
    "text": np.array(["a"]),
    "ragged": [[1.0], [1.0, 2.0]],
    "function": print,
    "structured": np.zeros(2, dtype=[("a", float)]),
    "time": np.datetime64("2026-01-01"),
}


@pytest.mark.parametrize("name", NOT_ARRAYS)
def test_what_is_not_an_array_of_numbers_is_refused_by_name(name):
    with pytest.raises(TypeError, match="^thing must be an array of numbers"):
        _checks.array("thing", NOT_ARRAYS[name])


def test_masked_values_are_refused_and_an_empty_mask_is_not():
    with pytest.raises(ValueError, match=r"thing has 2 masked value"):
        _checks.array("thing", np.ma.masked_greater(np.arange(4.0), 1.5))
    np.testing.assert_array_equal(_checks.array("thing", np.ma.masked_array([1.0, 2.0])), [1, 2])


def test_big_endian_and_extended_precision_are_converted():
    for given in (np.array([1.0, 2.0], ">f8"), np.array([1.0, 2.0], np.longdouble)):
        found = _checks.array("thing", given)
        assert found.dtype == jnp.float64
        np.testing.assert_array_equal(found, [1.0, 2.0])


def test_an_array_larger_than_the_memory_is_refused():
    with pytest.raises(ValueError, match=r"thing of shape \(1099511627776,\) would take 8192 GiB"):
        _checks.array("thing", np.broadcast_to(1.0, (2**40,)))


def test_large_integers_become_floats():
    assert float(_checks.array("thing", 10**23)) == 1e23
    with pytest.raises(ValueError, match="thing is too large"):
        _checks.array("thing", 10**400)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn])
def test_half_precision_is_refused(dtype):
    with pytest.raises(TypeError, match="use float32 or float64"):
        _checks.floating("theta", {"a": jnp.ones(2, dtype)})
    with pytest.raises(TypeError, match="x has dtype.*use float32 or float64"):
        prox.L1().prox(None, jnp.ones(2, dtype), None, 0.1)
    model = pipla.Model(lambda theta, x, data: jnp.sum(x**2), prox.LaplaceLocation())
    with pytest.raises(TypeError, match="particles has dtype.*use float32 or float64"):
        pipla.run(
            model, pipla.PIPGLA(0.1), theta=jnp.zeros((), dtype), particles=jnp.zeros((2, 3), dtype),
            num_steps=2, key=jax.random.key(0),
        )  # fmt: skip


def test_counts_beyond_32_bits_are_refused():
    with pytest.raises(ValueError, match="num_steps must be at most 2147483647, got 8589934592"):
        _checks.integer("num_steps", 2**33, least=1)
    with pytest.raises(ValueError, match="max_iterations must be at most"):
        prox.TotalVariation(max_iterations=2**31)
    assert _checks.integer("num_steps", 2**31 - 1, least=1) == 2**31 - 1


def test_a_positive_number_is_positive_in_the_dtype_of_computations():
    _checks.positive("noise", 1e-50)
    with jax.enable_x64(False), pytest.raises(ValueError, match="noise must be positive"):
        _checks.positive("noise", 1e-50)
    with pytest.raises(TypeError, match="noise must be a positive number, got 0.1j"):
        _checks.positive("noise", 0.1j)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_a_choice_may_be_compared_with_an_array():
    with pytest.raises(ValueError, match="approximation must be one of"):
        prox.UniformBox(approximation=np.ones(3))


def _messages(tree):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        _checks.resolution("data", tree)
    return [str(warning.message) for warning in found]


def test_numbers_too_coarse_for_their_spread_are_warned_about():
    draws = np.random.default_rng(0).normal(size=50)
    (message,) = _messages({"y": np.float32(1e8 + draws)})
    assert "data['y']: near 1e+08 neighbouring float32 numbers are 8 apart" in message
    assert "subtract a constant first" in message
    # Given in float64, computed in float32: the differences show before they are lost.
    with jax.enable_x64(False):
        assert len(_messages(1e8 + draws)) == 1
    (message,) = _messages(1e14 + draws)
    assert "float64" in message
    assert "jax_enable_x64" not in message


def test_numbers_that_are_fine_enough_are_not():
    draws = np.random.default_rng(0).normal(size=50)
    fine = [draws, 1e8 + draws, np.float32(1e3 + draws), np.float32(1e8 * draws)]
    fine += [np.ones(5, np.float32), np.float32(1e9), np.arange(10**9, 10**9 + 5), "text", None]
    assert _messages(fine) == []
    jax.jit(lambda data: _checks.resolution("data", data))(jnp.ones(3))


def test_values_known_now_are_checked_inside_a_transformation():
    with pytest.raises(ValueError, match="y has 1 non-finite value"):
        jax.jit(lambda x: _checks.finite("y", np.array([1.0, np.nan])))(1.0)
    with pytest.raises(ValueError, match="lam_x must be 0 or positive"):
        jax.jit(lambda x: prox.L1().prox(None, x, None, -1.0))(X)
    _checks.finite("y", jnp.ones(2))


# map_estimate #


def test_the_map_estimate_of_a_flat_smooth_part_is_that_of_the_term():
    flat = pipla.Model(lambda theta, x, data: jnp.sum(0.0 * x) + 3.0, prox.LaplaceLocation())
    found = pipla.map_estimate(flat, jnp.asarray(0.5), X)
    np.testing.assert_allclose(found.x, 0.5)
    assert found.converged
    without = pipla.Model(None, prox.LaplaceLocation())
    np.testing.assert_allclose(pipla.map_estimate(without, jnp.asarray(0.5), X).x, 0.5)


BAD_ESTIMATES = {
    "model": ({"model": 3.0}, TypeError, "model must be a pipla.Model, got float"),
    "no x": ({"x": None}, ValueError, "x is empty"),
    "complex step": ({"step_size": 0.1j}, TypeError, "step_size must be a number"),
    "no tolerance": ({"tolerance": None}, TypeError, "tolerance must be a number"),
    "several steps": ({"step_size": jnp.ones(3)}, TypeError, "step_size must be a single real"),
    "many steps": ({"num_steps": 2**33}, ValueError, "num_steps must be at most"),
    "far": ({"step_size": 1e30, "num_steps": 200}, ValueError, "x became non-finite"),
}


@pytest.mark.parametrize("name", BAD_ESTIMATES)
def test_map_estimate_refuses(name):
    changed, kind, message = BAD_ESTIMATES[name]
    model = pipla.Model(lambda theta, x, data: jnp.sum(x**4), prox.LaplaceLocation())
    arguments = {"model": model, "theta": jnp.asarray(0.5), "x": X} | changed
    with pytest.raises(kind, match=message):
        pipla.map_estimate(**arguments)


def test_map_estimate_is_not_traced():
    model = pipla.Model(lambda theta, x, data: jnp.sum(x**2), prox.LaplaceLocation())
    with pytest.raises(TypeError, match="theta is being traced"):
        jax.jit(lambda theta: pipla.map_estimate(model, theta, X).x)(0.5)


# Problems #


def test_problems_name_what_they_refuse():
    for call, message in (
        (lambda: pipla.problems.toy(seed=-1), "seed must be at least 0"),
        (lambda: pipla.problems.toy(dimension=10**9), "dimension must be at most"),
        (lambda: pipla.problems.toy(ridge=np.inf), "ridge must be finite"),
        (lambda: pipla.problems.toy(ridge=1e300), "ridge must be between"),
        (lambda: pipla.problems.logistic(observations=0), "observations must be at least 1"),
        (lambda: pipla.problems.gaussian_hierarchy(noise=np.nan), "noise must be finite"),
        (lambda: pipla.problems.toy(5).particles(jax.random.key(0), 0), "num_particles must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
