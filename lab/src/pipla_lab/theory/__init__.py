"""The theorems of the paper as functions: bounds, conditions, assumptions, plans and tables.

`docs/theory.md` derives what the paper leaves open or gets wrong.
"""

from pipla_lab.theory.bounds import (
    ALGORITHMS,
    TERMS,
    Bound,
    ConditionError,
    Part,
    bound,
    conditions,
)
from pipla_lab.theory.constants import Constants, Numbers, measured
from pipla_lab.theory.orders import Needs, Order, complexity
from pipla_lab.theory.planning import Plan, PlanRefusedError, plan
from pipla_lab.theory.published import published_bound
from pipla_lab.theory.requirements import Assumption, assumptions

__all__ = [
    "ALGORITHMS",
    "TERMS",
    "Assumption",
    "Bound",
    "ConditionError",
    "Constants",
    "Needs",
    "Numbers",
    "Order",
    "Part",
    "Plan",
    "PlanRefusedError",
    "assumptions",
    "bound",
    "complexity",
    "conditions",
    "measured",
    "plan",
    "published_bound",
]
