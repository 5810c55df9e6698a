"""`pipla theory`: numbers for a run with a given error, the assumptions, and both tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipla_lab.theory import Plan


def command(
    error: Annotated[float, typer.Option(help="The root mean square error of theta wanted.")],
    mu: Annotated[float, typer.Option(help="Strong convexity of g1 in (theta, x).")],
    lipschitz: Annotated[float, typer.Option(help="L, the Lipschitz constant of its gradient.")],
    dim_theta: Annotated[int, typer.Option(help="Dimension of theta.")],
    dim_x: Annotated[int, typer.Option(help="Dimension of x.")],
    g2_lipschitz: Annotated[
        float | None, typer.Option(help="Lipschitz constant l of g2; sqrt(dim_x), the l1 norm's.")
    ] = None,
    theta_in_g2: Annotated[
        bool, typer.Option(help="Whether g2 depends on theta; if not, bounds are better.")
    ] = True,
    start: Annotated[
        float | None, typer.Option(help="Distance of the start; sqrt((dim_theta + dim_x)/mu).")
    ] = None,
    smoothing_rate: Annotated[
        float | None, typer.Option(help="c of your own: smoothing moves theta by at most c lam.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Only these, separated by commas; all four by default.")
    ] = None,
    step_size: Annotated[float | None, typer.Option(help="Keep this step size.")] = None,
    smoothing: Annotated[float | None, typer.Option(help="Keep this smoothing.")] = None,
    num_particles: Annotated[int | None, typer.Option(help="Keep this many particles.")] = None,
) -> None:
    """Numbers for which the theorems guarantee an error: plan, assumptions, comparison tables.

    The bounds are for the worst model with these constants: expect plans to be far too careful. A
    plan that breaks a condition of a theorem is refused with that condition.
    """
    from pipla.report.numbers import paragraph
    from pipla_lab import theory
    from pipla_lab.theory.requirements import stated

    names = _algorithms(algorithm)
    constants = theory.Constants(
        mu, lipschitz, dim_theta, dim_x, g2_lipschitz, theta_in_g2, start, smoothing_rate
    )
    plans, refused = [], []
    for name in names:
        try:
            plans.append(
                theory.plan(
                    *(error, mu, lipschitz, dim_theta, dim_x),
                    algorithm=name,
                    g2_lipschitz=g2_lipschitz,
                    theta_in_g2=theta_in_g2,
                    start=start,
                    smoothing_rate=smoothing_rate,
                    step_size=step_size,
                    smoothing=None if name == "PIPULA" else smoothing,
                    num_particles=num_particles,
                )
            )
        except theory.PlanRefusedError as refusal:
            refused.append(str(refusal))
    if not plans:
        raise ValueError(f"no plan: {' '.join(refused)}")
    lines = [
        f"For an error of {error:g}: mu = {mu:g}, L = {lipschitz:g}, d_theta = {dim_theta}, "
        f"d_x = {dim_x},",
        f"l = {constants.slope:.4g} (g2 is l-Lipschitz"
        f"{' in theta and x' if theta_in_g2 else ' in x alone'}), "
        f"start = {constants.distance:.4g} from the minimiser.",
        *paragraph("Plans: the fewest evaluations for which the bound is below the error."),
        *_plan_table(plans),
        *paragraph(
            "Terms of the bounds, and their formulas [labels of the paper, errata]; "
            "delta = d_x + d_theta/N, L_lam = L + 1/lam."
        ),
        *_terms(plans),
    ]
    for sentence in refused:
        lines += paragraph(f"Refused: {sentence}")
    lines += paragraph("Assumptions, by their names in the paper.")
    lines += _assumptions(stated(constants))
    for version in ("published", "corrected"):
        lines += _complexity(version, error, dim_theta, dim_x)
    print("\n".join(lines))


def _algorithms(given: str | None) -> list[str]:
    from pipla_lab import checks
    from pipla_lab.theory import ALGORITHMS

    if given is None:
        return list(ALGORITHMS)
    names = [word.strip().upper() for word in given.split(",") if word.strip()]
    for name in names:
        checks.choice("algorithm", name, ALGORITHMS)
    return names or list(ALGORITHMS)


def _plan_table(plans: Sequence[Plan]) -> list[str]:
    from pipla.report.numbers import aligned

    rows = []
    for plan in plans:
        numbers = plan.numbers
        lam = numbers.step_size if numbers.smoothing is None else numbers.smoothing
        rows.append(
            [
                plan.algorithm,
                f"{lam:.3g}",
                f"{numbers.num_particles:.4g}",
                f"{numbers.step_size:.3g}",
                f"{numbers.num_steps:.3g}",
                f"{plan.evaluations:.2g}",
                f"{plan.normals:.2g}",
                f"{plan.bound.total:.4g}",
            ]
        )
    head = ["", "smoothing", "particles", "step", "steps", "evaluations", "normals", "bound"]
    return aligned(head, rows)


def _terms(plans: Sequence[Plan]) -> list[str]:
    import textwrap

    from pipla.report.numbers import WIDTH

    lines = []
    for plan in plans:
        why = "" if plan.bound.verified else " (not verified: smoothing_rate is as given)"
        lines.append(f"{plan.algorithm}{why}")
        for name, part in plan.bound.terms.items():
            if part.value == 0:
                continue
            text = f"  {name:<14} {part.value:<7.3g} {part.formula} [{part.source}]"
            lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * 25, break_on_hyphens=False)
    return lines


def _assumptions(found: Sequence[tuple[str, str, str, bool | None, str]]) -> list[str]:
    import textwrap

    from pipla.report.numbers import WIDTH

    words = {True: "holds", False: "fails", None: "open"}
    lines = []
    for name, label, statement, holds, reason in found:
        text = f"{name} {words[holds]:<5}  {statement}: {reason} [{label}]"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * 10, break_on_hyphens=False)
    return lines


def _complexity(version: str, error: float, dim_theta: int, dim_x: int) -> list[str]:
    """The table of orders, and their values with the constant 1."""
    from pipla.report.numbers import aligned, paragraph
    from pipla_lab.theory.orders import COLUMNS, complexity

    title = {
        "published": "Orders as published [tab:comparison_table], and their values at this error "
        "with the constant 1.",
        "corrected": "The same, corrected (E15, E16). N, n and evaluations grow faster than in "
        "the published table.",
    }
    numbers = ["smoothing", "num_particles", "step_size", "num_steps"]
    costs = ["evaluations", "normals"]
    table = complexity("published" if version == "published" else "corrected")
    lines = paragraph(title[version])
    for columns in (numbers, costs):
        rows = []
        for needs in table:
            name = f"{needs.algorithm} {needs.errata}".strip()
            orders = [getattr(needs, column) for column in columns]
            rows.append([name, *map(str, orders)])
            values = (order.value(error, dim_theta, dim_x) for order in orders)
            rows.append(["", *(f"{value:.2g}" for value in values)])
        lines += aligned(["", *(COLUMNS[column] for column in columns)], rows)
    return lines
