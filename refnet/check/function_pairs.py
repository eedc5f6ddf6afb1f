"""Two mistakes in a function: one in the value and another one in the gradients, or one in each of
the gradients that are wrong.

Checked by: tests/check/test_source_edits.py::test_two_mistakes_have_two_names.
"""

from __future__ import annotations

from typing import Any

from refnet.batch import Params
from refnet.check.function_calls import Calls
from refnet.exact.running import Runs

__all__ = ["apart", "of_the_rest"]

SHARE = 3
"""The part of a search's work that each of several has."""


def apart(search: Any) -> str:
    """The mistakes of the gradients that are wrong, each by itself, or ""; of one that has no name,
    that it has none."""
    wrong = sorted(search.wrong)
    if len(wrong) < 2 or "value" in search.wrong or not search.shaped():
        return ""
    names: dict[str, list[str]] = {}
    for name in wrong:
        given = {n: search.given[n] if n == name else search.true[n] for n in search.given}
        names.setdefault(_named(search.of(given, {name})), []).append(name)
    unnamed = names.pop("", [])
    perhaps = "perhaps " * any(name.startswith("perhaps ") for name in names)
    parts = [f"{', '.join(of)}: {name.removeprefix('perhaps ')}" for name, of in names.items()]
    parts += [f"{', '.join(unnamed)}: no name"] * bool(unnamed)
    return perhaps + "; ".join(parts) if names else ""


def of_the_rest(search: Any, true: Params, runs: Runs) -> str:
    """What is wrong beside a mistake in the value, with which everything else would be ``true``."""
    given = {name: value for name, value in search.given.items() if name in true}
    right = search.of(given, set(), true)
    wrong = {name for name in given if not right.ratio(name, true[name]) <= 1}
    return _named(search.of(given, wrong, true, runs))


def _named(search: Any) -> str:
    """The name of an edit of the wrong results or, with part of the work, of a call."""
    name: str = search.best(search.edited())
    if not name:
        calls = Calls(search)
        calls.left /= SHARE
        name = search.best(calls.readings())
    return name.replace(f", in {', '.join(sorted(search.wrong))} alone", "")
