r"""The paper's comparison of algorithms [tab:comparison_table]: as published, and corrected.

What each number must be for an error of order $\varepsilon$, up to constants. The corrected table
follows from the paper's own bounds with these errors removed:

* E15, PIPGLA: $\gamma = O(\varepsilon^2/d_x)$, and $\lambda$ lies between $\gamma$ and
  $\gamma/(1 - \mu\gamma)$, so $\lambda = O(\varepsilon^2/d_x)$, too; a step contracts by
  $\sqrt{\lambda(1 - \gamma\mu)/\gamma} \ge \sqrt{1 - \gamma\mu}$, so
  $n \ge 2\log(1/\varepsilon)/(\mu\gamma)$.
* E16, MYPGD: its concentration and discretisation have $L + 1/\lambda$ before $1/\sqrt N$ and
  $\sqrt\gamma$: with $\lambda = O(\varepsilon)$, $N = O(d_x\varepsilon^{-4})$ and
  $\gamma = O(\varepsilon^4/d_x)$.
* E16, MYIPLA: $C_1$ is at best $\sqrt{2(L + 1/\lambda)/\mu}$ (`bound`), so
  $\gamma = O(\varepsilon^3/d_x)$.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, NamedTuple

from pipla_lab import checks

Version = Literal["published", "corrected"]


@dataclasses.dataclass(frozen=True)
class Order:
    r"""An order of magnitude $d_\theta^a d_x^b (d_\theta + d_x)^c\, \varepsilon^e \ell$.

    Attributes:
        error, theta, x, both: the exponents $e$, $a$, $b$, $c$.
        log: the factor $\ell$: none, `"error"` for $\log(1/\varepsilon)$, `"delta"` for
            $\varepsilon^{-\delta}$ with any $\delta > 0$ (counted as 1), or `"ratio"` for
            $\log(\varepsilon^2)/\log d_x$, here of the moduli.
    """

    error: int
    theta: int = 0
    x: int = 0
    both: int = 0
    log: Literal["", "error", "delta", "ratio"] = ""

    def value(self, error: float, dim_theta: int, dim_x: int) -> float:
        """The order with the constant 1."""
        powers = error**self.error * float(dim_theta) ** self.theta * float(dim_x) ** self.x
        powers *= float(dim_theta + dim_x) ** self.both
        if self.log == "error":
            return powers * math.log(1 / error)
        if self.log == "ratio":
            return powers * abs(math.log(error**2)) / math.log(dim_x) if dim_x > 1 else math.inf
        return powers

    def __str__(self) -> str:
        names = (("dθ", self.theta), ("dx", self.x), ("(dθ+dx)", self.both), ("ε", self.error))
        found = [_power(name, power) for name, power in names if power]
        if self.log == "delta":
            found[-1] = f"ε^({self.error}-δ)"
        words = {"error": ["log(1/ε)"], "ratio": ["log ε²/log dx"]}
        return " ".join(found + words.get(self.log, [])) or "1"


class Needs(NamedTuple):
    """What an algorithm needs for an error of order epsilon.

    Attributes:
        algorithm: which.
        smoothing, num_particles, step_size, num_steps: its numbers.
        evaluations: of gradient and prox, by components.
        normals: independent standard normal numbers.
        errata: what was corrected; empty in the published table.
    """

    algorithm: str
    smoothing: Order
    num_particles: Order
    step_size: Order
    num_steps: Order
    evaluations: Order
    normals: Order
    errata: str = ""


#: The columns of the table by name: field, heading.
COLUMNS = {
    "smoothing": "λ",
    "num_particles": "N",
    "step_size": "γ",
    "num_steps": "n",
    "evaluations": "evaluations",
    "normals": "normals",
}

_PUBLISHED = (
    Needs(
        "MYIPLA",
        *(Order(1), Order(-2, theta=1), Order(2, x=-1), Order(-2, x=1, log="delta")),
        Order(-4, theta=1, x=1, both=1, log="delta"),
        Order(-4, theta=1, x=2, log="delta"),
    ),
    Needs(
        "PIPGLA",
        *(Order(2), Order(-2, theta=1), Order(2, x=-1), Order(0, log="ratio")),
        Order(-2, theta=1, both=1, log="ratio"),
        Order(-2, theta=1, x=1, log="ratio"),
    ),
    Needs(
        "MYPGD",
        *(Order(1), Order(-2, x=1), Order(2, x=-1), Order(-2, x=1, log="delta")),
        Order(-4, x=2, both=1, log="delta"),
        Order(-4, x=3, log="delta"),
    ),
)
_CORRECTED = (
    Needs(
        "MYIPLA",
        *(Order(1), Order(-2, theta=1), Order(3, x=-1), Order(-3, x=1, log="error")),
        Order(-5, theta=1, x=1, both=1, log="error"),
        Order(-5, theta=1, x=2, log="error"),
        "E16",
    ),
    Needs(
        "PIPGLA",
        *(Order(2, x=-1), Order(-2, theta=1), Order(2, x=-1), Order(-2, x=1, log="error")),
        Order(-4, theta=1, x=1, both=1, log="error"),
        Order(-4, theta=1, x=2, log="error"),
        "E15",
    ),
    Needs(
        "MYPGD",
        *(Order(1), Order(-4, x=1), Order(4, x=-1), Order(-4, x=1, log="error")),
        Order(-8, x=2, both=1, log="error"),
        Order(-8, x=3, log="error"),
        "E16",
    ),
)


def complexity(version: Version = "corrected") -> tuple[Needs, ...]:
    """The table of the paper, as published or corrected.

    >>> for row in complexity("published"):
    ...     print(row.algorithm, row.num_steps)
    MYIPLA dx ε^(-2-δ)
    PIPGLA log ε²/log dx
    MYPGD dx ε^(-2-δ)
    """
    checks.choice("version", version, ("published", "corrected"))
    return _PUBLISHED if version == "published" else _CORRECTED


def _power(name: str, power: int) -> str:
    digits = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return name if power == 1 else f"{name}{digits}"
