"""Contracts that a term or an algorithm of your own must keep, for the tests of your package.

| name | what it is |
|---|---|
| `ProxCase` | a term, how to draw a theta and an x for it, and its minimum by other means |
| `check_prox` | all contracts that apply to a case; `AssertionError` with a sentence |
| `PROX_CONTRACTS` | the contracts one by one, for `pytest.mark.parametrize` |
| `AlgorithmCase` | an algorithm, with other numbers on demand, and a start |
| `check_algorithm` | all contracts of an algorithm |
| `ALGORITHM_CONTRACTS` | the contracts one by one |
| `compilations` | counts what XLA compiles in a block |
| `elementwise_minimum`, `global_minimum`, `basin_minimum` | minima by dense scans in NumPy |
| `separable`, `on_x_alone` | make the `minimum` of a case from a penalty on x |
| `draw_vector`, `draw_matrix`, `draw_normal` | ways to draw x and theta |

The contracts compare with float64: `jax.config.update("jax_enable_x64", True)` comes first.
Firm non-expansiveness is searched by hypothesis: `pip install 'pipla[testing]'`.
"""

from pipla.testing.algorithms import (
    ALGORITHM_CONTRACTS,
    AlgorithmCase,
    Start,
    check_algorithm,
    compilations,
)
from pipla.testing.cases import ProxCase, ProxContract
from pipla.testing.minima import (
    basin_minimum,
    draw_matrix,
    draw_normal,
    draw_vector,
    elementwise_minimum,
    global_minimum,
    on_x_alone,
    separable,
)
from pipla.testing.prox import PROX_CONTRACTS, check_prox

__all__ = [
    "ALGORITHM_CONTRACTS",
    "PROX_CONTRACTS",
    "AlgorithmCase",
    "ProxCase",
    "ProxContract",
    "Start",
    "basin_minimum",
    "check_algorithm",
    "check_prox",
    "compilations",
    "draw_matrix",
    "draw_normal",
    "draw_vector",
    "elementwise_minimum",
    "global_minimum",
    "on_x_alone",
    "separable",
]
