"""The verdict: is a difference from the certified gradient rounding, or a bug?

The judge asks of every quantity: can it be judged? is it rounding? (``refnet.check.judgement``);
then of the whole: is it another formula? which mistake is it?

A program may compute a formula in a form that keeps fewer digits than the reference's
(``refnet.check.forms``). What such a form explains is explained by rounding, too, and the
verdict names the form and what it loses.

Checked by: tests/check/test_compare.py; error rates: ``benchmarks.judge.rates``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np

from refnet.batch import Array, Params
from refnet.check.arithmetic import Kind
from refnet.check.conventions import Readings
from refnet.check.forms import Form, combined, deviation, errors_of_one_run, forms
from refnet.check.given import (
    Foreign,
    Names,
    Results,
    by_name,
    finite_numbers,
    float_type,
    judged_types,
    numbers,
)
from refnet.check.judgement import (
    AS_WRITTEN,
    EXPLAINED,
    LIMITS,
    NOT_ROUNDING,
    RANK,
    RULE,
    SHOWS_NOTHING,
    SUSPICIOUS,
    UNJUDGED,
    Judgement,
    Verdict,
    judgement,
    unjudged,
)
from refnet.check.noise import spread, unit
from refnet.check.where import located
from refnet.common.arguments import Rule, instance, kind, optional, takes
from refnet.exact.enclose import Certified
from refnet.exact.functions import CertifiedFunction
from refnet.exact.precision import float_values

__all__ = [
    "AS_WRITTEN",
    "EXPLAINED",
    "LIMITS",
    "NOT_ROUNDING",
    "RULE",
    "SHOWS_NOTHING",
    "SUSPICIOUS",
    "UNJUDGED",
    "Judgement",
    "Verdict",
    "compare",
    "compare_values",
    "gradients_of",
    "judged",
    "judgement",
]

Types = Mapping[str, Any]
"""A type of NumPy's or an arithmetic by a quantity's name, that of all others under ""."""
Explain = Callable[[Params, list[str], Params, float], str]
"""The name of what explains results, from those that are wrong, the sigmas and the unit roundoff:
``Readings.explain``."""
Early = Callable[[set[str]], str | None]
"""The name of a mistake by which these results are wrong, "" if it has none; None if that is not
known."""
SHOWS = 1000
"""How many sigma off a form has to be for its loss to show. A program that uses it is then within
LIMITS[0] sigma by chance in one entry of 200, and never in most of them."""


def _names(what: str, value: Any) -> None:
    kind(what, value, (tuple, list), "a tuple of names of results, such as ('dWhh', 'dx')")
    for name in value:
        kind(f"{what}: an entry", name, str, "a name of a result, such as 'dWhh'")


NAMES = Rule(_names, (None, 1.5, object(), (1,), ([],)))


@takes(
    theirs=instance(Mapping, "a dict of arrays by name"),
    certified=instance((Certified, CertifiedFunction), "what refnet.exact.certify gives"),
    required=optional(NAMES),
)
def compare(
    theirs: Results,
    certified: Certified | CertifiedFunction,
    *,
    dtype: Kind | None = None,
    required: Names = None,
    sigma: Params | None = None,
    readings: Readings | None = None,
) -> Verdict:
    """Judge another implementation's results by the certified ones.

    ``theirs``: arrays by the names of ``certified.named()``: loss, outputs, h, dWhh, dx, ...; of
    a function value and d + the name of each argument; Whh and x, as refnet names its gradients,
    are dWhh and dx.
    ``required``: the names that must be there; by default the gradient of every parameter.
    ``dtype``: what they computed in, a float type of NumPy's or a name: bfloat16, bfloat16-float32
    and float16-float32 (sums in float32), tf32; by default each array is judged by its own type,
    and a number without one (of Python's, or an integer) by that of most arrays.
    ``sigma``: what ``spread`` returned, if many results are judged by one certificate.
    ``readings``: the explanations to try (``refnet.check.conventions.Readings``), if many results
    are judged by one certificate or other readings of the parameters are to be tried, too.

    Missing or unknown names, other shapes, NaN and infinities are *not rounding*, with a
    note; but of what overflows in the reference's own run in that type nothing is known. Raises
    ValueError for a ``dtype`` that is none of these and for names of which none is a result's, and
    TypeError for a name that is no text and for what NumPy cannot read, such as a tensor that
    requires gradients.

    >>> import numpy as np
    >>> from refnet import Batch, RecurrentNet
    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=2)
    >>> params = net.init(np.random.default_rng(0))
    >>> batch = Batch(np.ones((3, 1, 1), np.float32), np.array([1]))
    >>> from refnet import loss_and_gradients
    >>> from refnet.exact import certify
    >>> theirs = loss_and_gradients(net, params, batch).gradients
    >>> compare(theirs, certify(net, params, batch)).verdict
    'explained by rounding'
    >>> theirs["Whh"] = theirs["Whh"].T
    >>> compare(theirs, certify(net, params, batch)).verdict
    'not rounding'

    Checked by: tests/check/test_compare.py.
    """
    theirs = by_name(theirs, certified.named())
    types, assumed = judged_types(theirs, dtype)
    if sigma is None:
        sigma = by_type(partial(spread, certified), certified, types)
    explain = (readings or Readings(certified)).explain
    return judged(theirs, certified, types, sigma, assumed, required, explain)


def judged(
    theirs: Results,
    certified: Any,
    types: Types,
    sigma: Params,
    assumed: str,
    required: Names,
    explain: Explain | None,
    early: Early | None = None,
) -> Verdict:
    """The verdict of ``compare`` on arrays that have the names of results already. ``types`` says
    by which type each is judged, and ``assumed`` why. ``early`` may name the mistake before any
    form or mistake is tried, and ``explain`` names it after the forms; None looks for no name.
    ``certified`` may also be a model's certificate."""
    comparison = _Comparison(theirs, certified, sigma, types)
    measured = comparison.is_it_rounding(required)
    wrong = {part.name for part in measured.parts if part.verdict == NOT_ROUNDING}
    known = early(wrong) if early and measured.verdict == NOT_ROUNDING else None
    parts, explanation = measured.parts, known or ""
    in_numpy = all(isinstance(kind, np.dtype) for kind in types.values())
    if known is None and measured.verdict in (SUSPICIOUS, NOT_ROUNDING) and in_numpy:
        parts, explanation = comparison.is_it_another_formula(parts)
    verdict = _worst(parts)
    if known is None and verdict == NOT_ROUNDING and not explanation and explain:
        explanation = comparison.which_mistake_is_it(measured.parts, explain)
    where = located(theirs, parts, sigma, certified) if RANK.get(verdict) else ()
    where += chaotic(certified, sigma, max(map(unit, types.values())))
    parts = tuple(replace(part, dtype=str(comparison.kind(part.name))) for part in parts)
    kinds = {str(types[name]) for name in theirs if name in types} or {str(types[""])}
    rule = RULE if isinstance(certified, Certified) else RULE + AS_WRITTEN
    return Verdict(verdict, parts, explanation, ", ".join(sorted(kinds)), rule, assumed, where)


CHAOTIC = 1e-3
"""The part of a gradient that one ulp in the inputs moves, from which on the verdict says so. Of
131 right results of random nets, most with Whh times 3 to 8, 5 had a gradient that was off by more
than this; of 4 the verdict said so (the fifth is off by .00101), and of no other."""


def chaotic(certified: Certified | CertifiedFunction, sigma: Params, u: float) -> tuple[str, ...]:
    """A sentence if an ulp in x, or in a function's arguments, moves a gradient by more than
    CHAOTIC of its norm: then rounding does, too, and it says nothing of the program."""
    size = {name: np.linalg.norm(e.value) for name, e in certified.named().items()}
    chaotic = [n for n in size if n[0] == "d" and np.linalg.norm(sigma[n]) > CHAOTIC * size[n] > 0]
    if not chaotic:
        return ()
    is_net = isinstance(certified, Certified)
    by = certified.condition(2 * u, ("x",) if is_net else ())
    part = {name: float(np.linalg.norm(by[name]) / size[name]) for name in chaotic}
    name = max(part, key=part.__getitem__)
    if not part[name] > CHAOTIC:
        return ()
    what, where = ("net", "x") if is_net else ("function", "the arguments")
    return (
        f"the {what} is chaotic here: one ulp in {where} moves {name} by {part[name]:.2g} of its "
        "norm",
    )


def by_type(
    spread_of: Callable[[Any], Params], certified: Certified | CertifiedFunction, types: Types
) -> Params:
    """The spread of each quantity for the type by which it is judged."""
    spreads = {kind: spread_of(kind) for kind in set(types.values())}
    return {name: spreads[types.get(name, types[""])][name] for name in certified.named()}


def gradients_of(certified: Certified | CertifiedFunction) -> tuple[str, ...]:
    """The names of the gradients in every parameter."""
    return tuple(f"d{name}" for name in certified.params)


def compare_values(
    theirs: Results, true: Params, sigma: Params, dtype: Kind, required: tuple[str, ...]
) -> Verdict:
    """The verdict alone, from certified values and their sigma."""
    missing = [name for name in required if name not in theirs]
    parts = [
        judgement(name, theirs[name], true[name], sigma[name])
        if name in true
        else unjudged(name, _no_result(name, true))
        for name in theirs
    ]
    parts += [unjudged(name, "is missing") for name in missing or ["everything"] * (not theirs)]
    return Verdict(_worst(parts), tuple(parts), "", str(float_type(dtype)))


def _no_result(name: str, known: Params) -> str:
    near = get_close_matches(name, known, 1)
    return (
        f"is not the name of a result; these are {', '.join(known)}"
        + f": did you mean {''.join(near)}?" * bool(near)
    )


def _worst(parts: Sequence[Judgement]) -> str:
    gradients = [part for part in parts if part.name.startswith("d")] or parts
    if any(RANK[part.verdict] for part in parts):
        return max((part.verdict for part in parts), key=RANK.__getitem__)
    return (
        UNJUDGED
        if all(part.verdict == SHOWS_NOTHING for part in gradients)
        or any(part.overflow is not None for part in gradients)
        else EXPLAINED
    )


Parts = tuple[Judgement, ...]


@dataclass(frozen=True)
class _Comparison:
    """The questions about results: arrays by name, the type of each, and its sigma."""

    theirs: Results
    certified: Certified | CertifiedFunction
    sigma: Params
    types: Types

    def kind(self, name: str) -> Any:
        """The type by which a quantity is judged."""
        return self.types.get(name, self.types[""])

    @cached_property
    def true(self) -> Params:
        """The certified values."""
        return float_values(self.certified.named())

    def is_it_rounding(self, required: Names) -> Verdict:
        """The verdict without an explanation."""
        if required is None:
            required = gradients_of(self.certified)
        return compare_values(self.theirs, self.true, self.sigma, self.types[""], required)

    def is_it_another_formula(self, parts: Parts) -> tuple[Parts, str]:
        """The judgements with a form's own spread for sigma, and the name of that form, if it
        explains all of them. What overflows where the reference does in the same type shows
        nothing. Otherwise the judgements as they are."""
        infinite = {part.name for part in parts if part.note and part.index is not None}
        if infinite:
            plain = errors_of_one_run(self.certified, (), self.types[""])
            if infinite <= _overflowing(plain):
                return tuple(
                    replace(
                        part, verdict=SHOWS_NOTHING, z=0.0, rms=0.0, note="", overflow=part.index
                    )
                    if part.name in infinite
                    and _overflow_of(plain[part.name], self.theirs[part.name])
                    else part
                    for part in parts
                ), f"the right result is beyond the range of {self.types['']} here"
        if not isinstance(self.certified, Certified):
            return parts, ""
        wrong = [part for part in parts if RANK[part.verdict]]
        possible, overflowing = self._possible_forms(self.certified, wrong, infinite)
        if overflowing:
            return parts, f"{overflowing}, which overflows here"
        for form in combined(possible):
            again = self._with_form(self.certified, parts, form)
            if _worst(again) in (EXPLAINED, UNJUDGED):
                worst = max(wrong, key=attrgetter("z"))
                size = np.abs(np.asarray(worst.certified, self.kind(worst.name)))
                lost = abs(worst.theirs - worst.certified) / float(np.spacing(size))
                return again, (
                    f"explained if {' and '.join(form)}, which loses {lost:.2g} ulp at "
                    f"{worst.name}{list(worst.index or ())}"
                )
        return parts, ""

    def _with_form(self, certified: Certified, parts: Parts, form: Form) -> Parts:
        spreads = by_type(partial(deviation, certified, form), certified, self.types)
        return tuple(
            judgement(
                part.name,
                self.theirs[part.name],
                self.true[part.name],
                self.sigma[part.name],
                spreads[part.name],
            )
            if RANK[part.verdict]
            else part
            for part in parts
        )

    def _possible_forms(
        self, certified: Certified, wrong: list[Judgement], infinite: set[str]
    ) -> tuple[Form, str]:
        """The forms that lose as many digits as ``theirs``, by one run of each; and the first one
        that overflows where ``theirs`` is ``infinite``, or ""."""
        measured = all(part.z < np.inf for part in wrong)
        values = finite_numbers(self.theirs, self.true) if measured else {}
        possible = []
        for form in forms(certified.net):
            loss = errors_of_one_run(certified, (form,), self.types[""])
            overflowing = _overflowing(loss)
            if (
                infinite
                and infinite <= overflowing
                and overflowing & self.theirs.keys() <= {part.name for part in wrong}
            ):
                return (), form
            if any(
                measured and abs(loss[part.name]).max() * 100 > part.z * part.sigma
                for part in wrong
            ) and not any(
                _is_right_without(value - self.true[name], self.sigma[name], loss[name])
                for name, value in values.items()
            ):
                possible.append(form)
        return tuple(possible), ""

    def which_mistake_is_it(self, parts: Parts, explain: Explain) -> str:
        """The name of the mistake that explains ``theirs``, or ""; nothing explains what is no
        number."""
        finite = finite_numbers(self.theirs, self.sigma)
        if finite.keys() != self.theirs.keys() & self.sigma.keys():
            return ""
        wrong = [part.name for part in parts if part.verdict == NOT_ROUNDING]
        return explain(finite, wrong, self.sigma, min(unit(self.kind(name)) for name in wrong))


def _overflowing(results: Params) -> set[str]:
    return {name for name, value in results.items() if not np.isfinite(value).all()}


def _overflow_of(plain: Array, theirs: Foreign) -> bool:
    """Whether theirs is finite wherever the reference's own run is."""
    values = numbers(theirs)
    return values is not None and bool((np.isfinite(values) | ~np.isfinite(plain)).all())


def _is_right_without(error: Array, sigma: Array, loss: Array) -> bool:
    """Whether the results refute a form: most of the entries that it would put off by SHOWS sigma
    are right."""
    shows = abs(loss) > SHOWS * sigma
    return bool(shows.sum() > 1 and (abs(error) <= LIMITS[0] * sigma)[shows].mean() > 0.5)
