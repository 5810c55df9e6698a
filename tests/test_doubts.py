"""What a fit says against its own answer."""

import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.diagnostics import Finding
from pipla.engine.result import Status
from pipla.fitting.doubts import findings_of, kinked, uneven
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
    words = str(uneven(model, jnp.zeros(()), x, sd, 0.08))
    assert words.startswith(f"the data determine some elements of x['slopes'] {ratio} times")
    even = pipla.Model(weighted, LaplaceScale().on(x="slopes"), jnp.asarray([0.0, 1.0, 4.0]))
    sd = {"intercept": np.ones(()), "slopes": np.array([0.1, 1.0, 1.0])}
    assert uneven(even, jnp.zeros(()), x, sd, 0.08) is None


def test_a_noise_that_the_step_hides_is_not_called_undetermined():
    one = np.ones(1)
    estimate = Estimate(0, 1.5, one, one, one, np.full((1, 1), np.inf), one, (0.0, 0.0, 1.0), ())
    said = findings_of(
        estimate, ["noise"], ("noise",), False, Status.STOPPED, "", Finding("x", "units")
    )
    said = list(map(str, said))
    assert said[0] == "noise: not found, although the data may well determine it, because units"
    assert not any("do not determine" in each or "no maximum" in each for each in said)
    said = findings_of(estimate, ["noise"], ("noise",), False, Status.STOPPED, "", None)
    assert "no maximum" in str(said[0])
    assert "do not determine" in str(said[1])


FEATURES = np.random.default_rng(0).normal(size=(60, 8))


def laplace_noise(theta, x, data):
    return jnp.sum(jnp.abs(data @ x["slopes"] - 1)) + 0.5 * x["intercept"] ** 2


def laplace_noise_rounded_off(theta, x, data):
    return jnp.sum(jnp.sqrt((data @ x["slopes"] - 1) ** 2 + 0.1**2)) + 0.5 * x["intercept"] ** 2


def square_and_kink(theta, x, data):
    z = data @ x["slopes"]
    return 0.5 * jnp.sum(z**2) + 5 * jnp.sum(jnp.maximum(z, 0.0)) + x["intercept"] ** 2


def counts(theta, x, data):
    return jnp.sum(jnp.exp(data @ x["slopes"] + x["intercept"]))


def classes(theta, x, data):
    z = 10 * (data @ x["slopes"] + x["intercept"])
    return jnp.sum(jnp.logaddexp(0.0, z) - 0.5 * z)


@pytest.mark.parametrize("number", [4, 100])
@pytest.mark.parametrize(
    ("smooth", "words"),
    [
        (laplace_noise, "smooth has kinks in x"),
        (square_and_kink, "smooth has kinks in x"),
        (laplace_noise_rounded_off, ""),
        (weighted, ""),
        (counts, ""),
        (classes, ""),
    ],
)
def test_kinks_in_the_smooth_part_are_named(smooth, words, number):
    """A noise with an `abs` in `smooth`: the data seemed to determine neither scale nor noise."""
    data = 1.0 if smooth is weighted else FEATURES
    model = pipla.Model(smooth, LaplaceScale().on(x="slopes"), jnp.asarray(data))
    rng = np.random.default_rng(1)
    x = {"intercept": rng.normal(size=number), "slopes": rng.normal(size=(number, 8))}
    found = kinked(model, jnp.zeros(()), {name: jnp.asarray(leaf) for name, leaf in x.items()})
    assert str(found or "").startswith(words)
    assert bool(found) == bool(words)


def test_a_fit_that_does_not_converge_for_a_kink_says_so():
    model = pipla.Model(laplace_noise, LaplaceScale().on(x="slopes"), jnp.asarray(FEATURES))
    x = {"intercept": jnp.zeros(()), "slopes": jnp.zeros(8)}
    with pytest.warns(pipla.ConvergenceWarning, match="smooth has kinks in x"):
        pipla.fit(model, theta=0.0, x=x, num_particles=20, max_steps=300)


def test_a_cause_is_named_also_where_theta_is_known():
    one = np.ones(1)
    estimate = Estimate(0, 1.5, one, one, one, np.eye(1), one, (0.0, 0.0, 1.0), ("moving",))
    said = findings_of(estimate, ["scale"], (), False, Status.STOPPED, "", Finding("x", "kinks"))
    assert list(map(str, said)) == ["kinks", "not converged: moving"]
