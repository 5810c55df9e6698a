"""Every term of the table against every contract of `pipla.testing`."""

import pytest
from prox_table import CASES

from pipla.testing import PROX_CONTRACTS

#: Contracts about code that all terms share are tested on one term of each kind.
SHARED = {
    "jit_and_solve_equal_prox",
    "vmap_over_numbers_equals_a_loop",
    "envelope_gradient_is_the_gradient_of_the_envelope",
}
KINDS = {"laplace_location", "laplace_scale", "tv_image", "l1"}

#: Terms whose solvers take seconds to trace: `make check` has their quick contracts.
SLOW = {"laplace_scale", "nuclear_strength", "uniform_log_box"}


def marks(contract, case):
    return [pytest.mark.slow] if contract.thorough and case.name in SLOW else []


PAIRS = [
    pytest.param(contract, case, id=f"{contract}-{case}", marks=marks(contract, case))
    for contract in PROX_CONTRACTS
    for case in CASES
    if contract.applies(case) and (contract.name not in SHARED or case.name in KINDS)
]


@pytest.mark.parametrize(("contract", "case"), PAIRS)
def test_contract(contract, case):
    contract(case)
