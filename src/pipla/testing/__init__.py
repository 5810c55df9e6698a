"""Contracts that a term of your own must keep, for the tests of your package.

| name | what it is |
|---|---|
| `ProxCase` | a term, how to draw a theta and an x for it, and its minimum by other means |
| `check_prox` | all contracts that apply to a case; `AssertionError` with a sentence |
| `PROX_CONTRACTS` | the contracts one by one, for `pytest.mark.parametrize` |
| `elementwise_minimum`, `global_minimum`, `basin_minimum` | minima by dense scans in NumPy |
| `separable`, `on_x_alone` | make the `minimum` of a case from a penalty on x |
| `draw_vector`, `draw_matrix`, `draw_normal` | ways to draw x and theta |

The contracts compare with float64: `jax.config.update("jax_enable_x64", True)` comes first.
Firm non-expansiveness is searched by hypothesis: `pip install 'pipla[testing]'`.
"""

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
    "PROX_CONTRACTS",
    "ProxCase",
    "ProxContract",
    "basin_minimum",
    "check_prox",
    "draw_matrix",
    "draw_normal",
    "draw_vector",
    "elementwise_minimum",
    "global_minimum",
    "on_x_alone",
    "separable",
]
