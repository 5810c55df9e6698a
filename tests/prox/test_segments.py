"""The first root by sorting, against a dense scan of its equation."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipla.prox._roots.segments import first_root, segments

find = jax.jit(first_root)
amplitude = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(1e-3, 20))


def equation(v, start, amplitudes, constant, ratio):
    w = np.exp(v)
    return v - start + constant + ratio * w * np.sum(np.maximum(amplitudes[:, None] - w, 0), axis=0)


@settings(max_examples=400, deadline=None)
@given(
    st.floats(-3, 3),
    st.lists(amplitude, min_size=5, max_size=5),
    st.floats(-3, 1.5).map(lambda e: 10**e),
    st.floats(-3, 1).map(lambda e: 10**e),
    st.booleans(),
)
def test_first_root_downhill(start, amplitudes, constant, ratio, pushes_up):
    # The two uses: a bump that pulls down against a constant push, and the other way round.
    constant, ratio = (constant, -ratio) if pushes_up else (-constant, ratio)
    amplitudes = np.array(amplitudes)
    root = float(find(start, jnp.asarray(amplitudes), constant, ratio))
    args = (start, amplitudes, constant, ratio)
    scale = 1 + abs(constant) + abs(ratio) * np.sum(amplitudes**2) + abs(root - start)
    assert abs(equation(np.array([root]), *args)[0]) <= 1e-10 * scale
    between = start + (root - start) * np.linspace(0, 1, 8001)[:-1]
    values = np.sign(equation(np.array([start]), *args)[0]) * equation(between, *args)
    assert np.all(values >= -1e-10 * scale)


def test_segments_list_what_exceeds_what():
    x = jnp.array([0.5, 3.0, 0.0, 3.0, 1.0])
    number, total, below, above = segments(x)
    np.testing.assert_array_equal(number, range(6))
    np.testing.assert_array_equal(above, [np.inf, 3, 3, 1, 0.5, 0])
    np.testing.assert_array_equal(below, [3, 3, 1, 0.5, 0, 0])
    np.testing.assert_array_equal(total, [0, 3, 6, 7, 7.5, 7.5])
    for dtype in (jnp.float16, jnp.float32, jnp.float64):
        np.testing.assert_array_equal(segments(x.astype(dtype))[3], above.astype(dtype))
