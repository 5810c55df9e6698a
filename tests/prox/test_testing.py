"""The contracts of `pipla.testing` catch wrong terms, and say what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import prox, testing

pytestmark = pytest.mark.slow


class FirmThreshold(prox.Fixed):
    r"""The minimax concave penalty $\sum_i w|x_i| - x_i^2/(2g)$, $w^2 g/2$ beyond $|x_i| = w g$.

    Weakly convex: its prox exists for $\lambda < g$.
    """

    finite = True
    weight: prox.Hyperparameter = prox.hyperparameter(default=1.0)
    range: prox.Hyperparameter = prox.hyperparameter(default=2.0)

    def penalty(self, x):
        w, g = self.weight.astype(x.dtype), self.range.astype(x.dtype)
        size = jnp.minimum(jnp.abs(x), w * g)
        return jnp.sum(w * size - size**2 / (2 * g))

    def shrink(self, x, lam):
        w, g = self.weight.astype(x.dtype), self.range.astype(x.dtype)
        size = jnp.abs(x)
        middle = jnp.maximum(size - lam * w, 0) / (1 - lam / g)
        return jnp.sign(x) * jnp.where(size > w * g, size, jnp.minimum(middle, size))


def penalty(u):
    size = np.minimum(np.abs(u), 2.0)
    return size - size**2 / 4


def case(term, **options):
    settings = {
        "name": type(term).__name__,
        "minimum": testing.separable(np.abs, 0.0),
        "draw_x": testing.draw_vector,
        "convex": True,
        "sizes": (1, 5),
    }
    return testing.ProxCase(term=term, **{**settings, **options})


def test_a_weakly_convex_penalty_declares_its_limit():
    weak = case(
        FirmThreshold(),
        minimum=testing.separable(penalty, 0.0, -2.0, 2.0),
        convex=False,
        max_lam_x=1.8,
    )
    testing.check_prox(weak)
    assert max(weak.draw(seed)[3] for seed in range(40)) == 1.8


class Identity(prox.L1):
    def threshold(self, x, lam):
        return x, self.penalty(x)


class Twice(prox.L1):
    def threshold(self, x, lam):
        return super().threshold(x, 2 * lam)


class Double(prox.L1):
    def penalty(self, x):
        return super().penalty(x).astype(jnp.float64)


class Moves(prox.L1):
    def prox(self, theta, x, lam_theta, lam_x):
        return theta + 1e-9, super().prox(theta, x, lam_theta, lam_x)[1]

    def solve(self, theta, x, lam_theta, lam_x, warm):
        solution = super().solve(theta, x, lam_theta, lam_x, warm)
        return solution._replace(theta=theta + 1e-9)


class Claims(prox.L1):
    uses_theta = True


WRONG = {
    Identity: "the_objective_is_the_minimum: the objective at the proximal point of .*: got",
    Twice: "the_objective_is_the_minimum",
    Double: "float32_agrees_with_float64: float32 in, .*float64.* out: cast numbers",
    Moves: "a_smoothing_of_zero_leaves_theta_alone: theta moved from 0.0 to 1e-09",
    Claims: "uses_theta is True, but joint is False",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda kind: kind.__name__)
def test_wrong_terms_are_caught_with_a_sentence(wrong):
    with pytest.raises(AssertionError, match=f"^{wrong.__name__}: .*{WRONG[wrong]}"):
        testing.check_prox(case(wrong()))


class Expansion(prox.Fixed):
    """Not a prox: it moves points apart."""

    def penalty(self, x):
        return jnp.zeros((), x.dtype)

    def shrink(self, x, lam):
        return 3 * x


def test_firm_nonexpansiveness_has_teeth():
    expansive = next(c for c in testing.PROX_CONTRACTS if "nonexpansive" in c.name)
    with pytest.raises(AssertionError, match="two proximal points are"):
        expansive(case(Expansion(), sizes=(1,)))


def test_contracts_ask_for_float64():
    euler = testing.AlgorithmCase("Euler", lambda factor: pipla.IPLA(0.05 * factor))
    for check in (
        lambda: testing.check_prox(case(prox.L1())),
        lambda: testing.check_algorithm(euler),
    ):
        with jax.enable_x64(False), pytest.raises(RuntimeError, match="jax_enable_x64"):
            check()
