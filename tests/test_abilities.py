"""Wrappers have every ability of what they wrap, or say by name that they have not."""

import equinox as eqx
import jax.numpy as jnp
import pytest

import pipla
from pipla._trees import Fixed
from pipla.models.fixed_leaves import Completed
from pipla.models.likelihoods.base import Forwarding, Likelihood, Scaled, Tilted
from pipla.models.noncentred import Reparametrised
from pipla.models.reparametrisations import Identity
from pipla.prox import base, combine, wrapped

#: Functions of the calculus, and what follows from other abilities.
DERIVED = {"on", "translate", "prox", "envelope_gradient", "coupled_sizes", "homogeneity"}


def abilities(of):
    return [name for name in vars(of) if not name.startswith("_")]


def subclasses(of):
    return [each for one in of.__subclasses__() for each in (one, *subclasses(one))]


def test_every_ability_of_a_likelihood_is_forwarded():
    missing = set(abilities(Likelihood)) - set(vars(Forwarding))
    assert not missing, f"Forwarding does not forward {sorted(missing)}."
    held = [of for of in subclasses(Likelihood) if "likelihood" in of.__dataclass_fields__]
    ours = [of for of in held if of.__module__.startswith("pipla.models")]
    assert set(ours) == {Forwarding, Scaled, Tilted, Completed, Reparametrised}
    assert all(issubclass(of, Forwarding) for of in ours)


def test_every_ability_of_a_term_is_forwarded():
    needed = set(abilities(base.Term)) - {"on", "translate", "prox", "envelope_gradient"}
    missing = needed - set(vars(wrapped.Wrapped)) - {"value", "solve", "envelope"}
    assert not missing, f"Wrapped does not forward {sorted(missing)}."
    ours = (combine.Scaled, combine.Translated, combine.On)
    for of in ours:  # what every wrapper computes from that of its term
        assert {"value", "solve", "envelope"} <= set(vars(of)), of
    missing = set(abilities(base.Term)) - DERIVED - set(vars(combine.Sum))
    assert not missing, f"Sum does not add up {sorted(missing)}."


class Able(Likelihood):
    """Has every ability; each answers with its own name."""

    def __call__(self, theta, x, data=None):
        return jnp.sum((x - theta) ** 2)

    bounded = True


def _named(name):
    return lambda self, *arguments: name


for _name in abilities(Likelihood):
    if _name not in ("bounded", "at_theta", "rows", "scaled"):
        setattr(Able, _name, _named(_name))

ARGUMENTS = {
    "uses_theta": 2, "flow": 4, "resolvent": 3, "stiffness": 1, "closed_form": 2, "gibbs": 3,
    "interwoven": 2, "noncentring": 0, "surrogate": 2, "sets_theta": 0, "parameters": 1,
    "num_rows": 0,
}  # fmt: skip
WRAPPERS = {
    "Scaled": Scaled(Able(), 2.0),
    "Tilted": Tilted(Able(), jnp.zeros(()), jnp.zeros(3)),
    "Completed": Completed(Able(), Fixed()),
    "Reparametrised": Reparametrised(Able(), Identity(), pipla.prox.L1()),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_answers_as_what_it_wraps_unless_it_says_otherwise(name):
    wrapper = WRAPPERS[name]
    own = set(vars(type(wrapper)))
    assert wrapper.bounded or "bounded" in own
    for ability, count in ARGUMENTS.items():
        found = getattr(wrapper, ability)(*[0.0] * count) if ability not in own else ability
        assert found == ability


def test_a_noncentred_model_keeps_the_noise_of_its_likelihood():
    likelihood = pipla.likelihoods.Gaussian(pipla.operators.Identity(), jnp.ones(3), None)
    model = pipla.Model(likelihood, pipla.prox.LaplaceScale())
    inner = pipla.noncentred(model).model.smooth
    theta = {"noise": jnp.zeros(()), "prior": jnp.zeros(())}
    assert inner.sets_theta() == ("noise",)
    assert list(inner.parameters(theta)) == list(model.smooth.parameters(theta)) != []
    assert eqx.tree_equal(inner.noncentring()[1], model.nonsmooth)


def test_a_multiple_of_a_square_is_a_square():
    assert (2.0 * pipla.prox.SquaredL2()).homogeneity == 2
