"""What a fit says against its own answer."""

import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.engine.result import Status
from pipla.fitting.doubts import doubts_of, uneven
from pipla.fitting.verdict import Estimate
from pipla.prox import LaplaceScale


def weighted(theta, x, data):
    return 0.5 * jnp.sum(data * x["slopes"] ** 2) + 0.5 * x["intercept"] ** 2


@pytest.mark.parametrize(
    ("curvatures", "sds", "ratio"),
    [([1.0, 1.0, 1.0], [5e-3, 1.0, 0.0], "2e+02"), ([1e-6, 1.0, 1e6], [0.3, 0.3, 0.3], "1e+06")],
)
def test_elements_for_which_the_step_is_too_long_are_named(curvatures, sds, ratio):
    """Features in units from 1e-3 to 1e3: the data seemed not to determine the noise.

    The step had made the noise so large that all sds were those of the prior.
    """
    model = pipla.Model(weighted, LaplaceScale().on(x="slopes"), jnp.asarray(curvatures))
    x = {"intercept": jnp.zeros(()), "slopes": jnp.zeros(3)}
    sd = {"intercept": np.ones(()), "slopes": np.asarray(sds)}
    words = uneven(model, jnp.zeros(()), x, sd, 0.08)
    assert words.startswith(f"the data determine some elements of x['slopes'] {ratio} times")
    even = pipla.Model(weighted, LaplaceScale().on(x="slopes"), jnp.asarray([0.0, 1.0, 4.0]))
    sd = {"intercept": np.ones(()), "slopes": np.array([0.1, 1.0, 1.0])}
    assert uneven(even, jnp.zeros(()), x, sd, 0.08) == ""


def test_a_noise_that_the_step_hides_is_not_called_undetermined():
    one = np.ones(1)
    estimate = Estimate(0, 1.5, one, one, one, np.full((1, 1), np.inf), one, (0.0, 0.0, 1.0), ())
    said = doubts_of(estimate, ["noise"], ("noise",), False, Status.STOPPED, "", "units")
    assert said[0] == "noise: not found, although the data may well determine it: units"
    assert not any("do not determine" in each or "no maximum" in each for each in said)
    said = doubts_of(estimate, ["noise"], ("noise",), False, Status.STOPPED, "", "")
    assert "no maximum" in said[0]
    assert "do not determine" in said[1]
