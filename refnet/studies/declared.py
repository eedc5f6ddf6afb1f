"""The studies that are declared in the .toml files beside this one, and what is said of runs.

A table of a file is a study. ``columns``: of each its name, a quantity of a run's row and a format.
``curve`` and ``panels``: as of ``Grid``. ``cells``: groups of cases, with the ``settings`` and
``quick`` settings that they share, and the text that their labels begin with, ``of``; a case has
its other settings, and ``printed``, its numbers in the paper; ``cause`` and ``stands_for`` as of a
``Cell``. ``findings``: sentences with the
claims that the rows must bear out. A claim is a rule of ``refnet.studies.comparison``, a quantity
if the rule takes one, labels of cells, with ``of`` before those that begin with ":", and numbers.

Checked by: tests/studies/test_findings.py.
"""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from refnet.runs.read import Record
from refnet.runs.rows import Canvas
from refnet.studies.comparison import RULES, Claim, Finding, Quantity
from refnet.studies.grid import Cell, Grid
from refnet.studies.quantities import QUANTITIES

__all__ = ["FINDINGS", "declared", "quantity"]

_STUDIES: dict[str, Record] = {
    name: study
    for path in sorted(Path(__file__).parent.glob("*.toml"))
    for name, study in tomllib.loads(path.read_text("utf-8")).items()
}


def quantity(spec: str | list[Any]) -> Quantity:
    """A quantity by its name, or by its name and what it needs besides the row:
    ``["best", "mse"]``."""
    if isinstance(spec, str):
        return QUANTITIES[spec]
    name, *arguments = spec
    return lambda row: QUANTITIES[name](row, *arguments)


def _claims(rule: str, *terms: Any, of: str, floor: float) -> tuple[Claim, ...]:
    known = [quantity(terms[0])] if rule not in ("solved", "slower") else []
    labels = (
        of + term if isinstance(term, str) and term[0] == ":" else term
        for term in terms[len(known) :]
    )
    claims = RULES[rule](*known, *labels, **({"floor": floor} if floor else {}))
    return claims if isinstance(claims, tuple) else (claims,)


def _finding(
    name: str, text: str, claims: Sequence[list[Any]] = (), of: str = "", floor: float = 0
) -> Finding:
    known = tuple(claim for row in claims for claim in _claims(*row, of=of, floor=floor))
    return Finding(name, _unwrapped(text), known)


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


FINDINGS: dict[str, tuple[Finding, ...]] = {
    name: tuple(_finding(**finding) for finding in study["findings"])
    for name, study in _STUDIES.items()
    if "findings" in study
}


def declared(name: str, draw: Callable[[dict[str, Record], str], Canvas] | None = None) -> Grid:
    """What is declared under that name. ``draw``: as of a ``Grid``."""
    study = _STUDIES[name]
    return Grid(
        name,
        _unwrapped(study["title"]),
        [
            _cell(group.get("of", "") + label, {**group.get("settings", {}), **case}, group)
            for group in study["cells"]
            for label, case in group["cases"].items()
        ],
        [(column, quantity(spec), form) for column, spec, form in study["columns"]],
        tuple(study.get("curve", ())),
        study.get("panels", ""),
        draw,
        FINDINGS.get(name, ()),
    )


def _cell(label: str, settings: Record, group: Record) -> Cell:
    other = {name: settings.pop(name, group.get(name, "")) for name in ("cause", "stands_for")}
    printed = tuple(settings.pop("printed", ()))
    return Cell(label, settings, printed, settings.pop("quick", group.get("quick", {})), **other)
