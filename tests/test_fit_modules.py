"""`pipla.fit` with modules as theta and x: the fit of their arrays, and modules again."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import _trees
from pipla.prox import LaplaceLocation

pytestmark = pytest.mark.slow  # two fits compile

DATA = np.asarray([0.5, 1.5, 1.0])


class Link(eqx.Module):
    """A place and a slope, with settings that are not marked static."""

    place: jax.Array
    slope: jax.Array
    act: Callable[[Any], Any] = jnp.tanh
    name: str = "link"
    rate: float = 0.5
    nothing: None = None

    def __call__(self, x):
        assert self.name == "link"
        return x + self.rate * self.act(self.slope)


class Latent(eqx.Module):
    """One latent vector behind an attribute, with a function and an integer."""

    inner: tuple[jax.Array, ...]
    shape: Callable[[Any], Any] = jnp.sin
    size: int = 3


def smooth(theta, x, data):
    assert x.shape is jnp.sin
    return jnp.sum((theta(x.inner[0]) - data) ** 2) / 2 + jnp.sum(theta.slope**2)


def smooth_plain(theta, x, data):
    misfit = x[0] + 0.5 * jnp.tanh(theta["slope"]) - data
    return jnp.sum(misfit**2) / 2 + jnp.sum(theta["slope"] ** 2)


LINK = Link(jnp.asarray(0.3), jnp.asarray([0.5, -0.2, 0.1]))
TERM = LaplaceLocation()
MODEL = pipla.Model(smooth, TERM.on(theta="place", x=("inner", 0)), data=DATA)
PLAIN = pipla.Model(smooth_plain, TERM.on(theta="place", x=0), data=DATA)
OPTIONS = {"num_particles": 4, "max_steps": 300}


@pytest.fixture(scope="module")
def seen():
    return []


@pytest.fixture(scope="module")
def fit(seen):
    def look(view):
        seen.append((view.theta.fine, view.particles.coarse))

    options = {**OPTIONS, "tolerance": 1e-6, "callbacks": [look]}
    return pipla.fit(MODEL, theta=LINK, x=Latent((jnp.zeros(3),)), **options)


def test_it_is_the_fit_of_the_arrays(fit):
    plain = pipla.fit(
        PLAIN,
        theta={"place": LINK.place, "slope": LINK.slope},
        x=(jnp.zeros(3),),
        tolerance={"place": 1e-6, "slope": 1e-6},
        **OPTIONS,
    )
    for name in ("place", "slope"):
        for tree in ("theta", "theta_stderr", "theta_mcse"):
            found = getattr(getattr(fit, tree), name)
            np.testing.assert_allclose(found, getattr(plain, tree)[name], rtol=1e-4, err_msg=tree)
    np.testing.assert_allclose(fit.x_mean.inner[0], plain.x_mean[0], rtol=1e-4)
    np.testing.assert_allclose(fit.x_samples.inner[0], plain.x_samples[0], rtol=1e-4, atol=1e-5)
    said = " ".join(map(str, plain.findings))
    said = said.replace("theta['place']", "theta.place").replace("theta['slope']", "theta.slope")
    assert " ".join(map(str, fit.findings)) == said


def test_what_it_holds_of_theta_and_x_are_modules(fit, seen):
    assert fit.theta.act is jnp.tanh
    assert fit.theta_stderr.act is None
    assert fit.x_mean.size == fit.particles.size == 3
    assert fit.particles.inner[0].shape == (4, 3)
    assert fit.x_sd.shape is None
    assert "theta.slope[2]" in fit.summary()
    theta, particles = seen[-1]
    assert theta.act is jnp.tanh
    assert particles.shape is jnp.sin


def test_it_is_saved_and_resumed_from_the_same_modules(fit, tmp_path):
    again = pipla.load(fit.save(tmp_path / "fit"))
    assert again.modules == {"theta": "Link", "particles": "Latent"}
    assert again.theta["rate"] == 0.5
    assert again.theta["act"] is None
    assert "theta['slope'][2]" in again.summary()
    np.testing.assert_array_equal(again.x_samples["inner"][0], fit.x_samples.inner[0])
    with pytest.raises(ValueError, match=r"theta is needed to resume .* \(Link\)"):
        again.resume(MODEL, max_steps=10)
    blank = Link(jnp.zeros(()), jnp.zeros(3))
    cloud = Latent((jnp.zeros((4, 3)),))
    from_file = again.resume(MODEL, max_steps=10, theta=blank, particles=cloud)
    in_memory = fit.resume(MODEL, max_steps=10)
    for a, b in zip(
        jax.tree.leaves((from_file.theta_trace, _trees.split(from_file.particles)[0])),
        jax.tree.leaves((in_memory.theta_trace, _trees.split(in_memory.particles)[0])),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert from_file.theta.act is jnp.tanh


def test_a_theta_that_is_too_large_is_refused_with_what_to_use():
    large = Link(jnp.zeros(()), jnp.zeros(1000))
    model = pipla.Model(lambda theta, x, _: jnp.sum(x.inner[0] ** 2) + jnp.sum(theta.slope**2))
    with pytest.raises(ValueError, match=r"theta has 1001 numbers.*at most 200.*theta_optimizer"):
        pipla.fit(model, theta=large, x=Latent((jnp.zeros(3),)))
