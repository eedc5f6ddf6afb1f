"""The verdict: is a difference from the certified gradient rounding, or a bug?

Element-wise tolerances and ULP counts cannot tell: cancellation makes correct float32
gradients differ by thousands of ulp in some entries, while a real bug hides in others. So
each entry has its sigma as a unit: the spread of the same computation when every operation is
perturbed by its rounding error (``refnet.check.noise``).

A program may also compute a formula in a form that keeps fewer digits than the reference's
(``refnet.check.forms``). A result that such a form explains is explained by rounding, too, and
the verdict names the form and the digits that it loses.

Checked by: tests/check/test_compare.py; error rates: ``benchmarks.judge.rates``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from refnet.arguments import SEED, Rule, count, instance, kind, optional, takes
from refnet.batch import Array, Params
from refnet.check.arithmetic import Kind
from refnet.check.conventions import Readings
from refnet.check.forms import combined, deviation, forms, once
from refnet.check.given import asked, by_name, constant, judged_types, numbers, unreadable
from refnet.check.noise import RUNS, spread, unit
from refnet.exact.enclose import Certified
from refnet.exact.functions import CertifiedFunction

__all__ = [
    "AS_WRITTEN",
    "EXPLAINED",
    "NOT_ROUNDING",
    "RULE",
    "SHOWS_NOTHING",
    "SUSPICIOUS",
    "UNJUDGED",
    "Judgement",
    "Verdict",
    "compare",
    "compare_values",
    "judgement",
]

EXPLAINED = "explained by rounding"
SHOWS_NOTHING = "shows nothing"
"""Of one quantity: its errors are explained by rounding, and zeros in its place would be, too."""
UNJUDGED = "cannot be judged"
"""Of a result: no gradient in it shows anything."""
SUSPICIOUS = "suspicious"
NOT_ROUNDING = "not rounding"
LIMITS = (6, 12)
TAILS = 8
"""How much wider the limits of a blind quantity are: errors that grow by chance from step to step,
until they are as large as the result, have a distribution with long tails. In 30 chaotic nets one
run of 30 was often 10 to 18 times as far off as the root mean square of the others."""
HIDDEN = 0.1
"""The share of a quantity's entries that show nothing from which the note names it: less than a
gate's block of a stacked gradient, more than the few entries that cancel by chance."""
SHOWS = 1000
"""How many sigma off a form has to be for its loss to show. A program that uses it is then within
LIMITS[0] sigma by chance in one entry of 200, and never in most of them."""
RULE = (
    "z = |theirs - certified| / sigma, where sigma is the spread of the reference run with "
    "a random relative perturbation of one unit roundoff at every operation; the worst z "
    f"up to {LIMITS[0]} is {EXPLAINED}, above {LIMITS[1]} {NOT_ROUNDING}, between "
    f"{SUSPICIOUS}; both are {TAILS} times as wide for a quantity that shows nothing, because "
    "rounding explains zeros in its place. This is statistics, apart from the certified "
    "radius, which is proof."
)
AS_WRITTEN = (
    " Of a function, sigma belongs to the algorithm as it is written, forward and back: "
    "a form that keeps fewer digits, such as E[x^2] - E[x]^2 for a variance, or a "
    "formula for the gradient without a cancellation that the reverse pass has, is not "
    "explained by it. In float64 a wrong term shows that hides in the rounding of "
    "float32."
)


@dataclass(frozen=True)
class Judgement:
    """One quantity: its verdict, and the worst entry with both numbers, its sigma and z.

    ``note`` says what else is wrong (missing, of another shape, not finite); then ``index``
    is None or that of the first such entry. ``rms`` is the root mean square of z. ``dtype``:
    the type in which this quantity is taken to be computed, or "". ``hidden``: the share of the
    entries that show nothing: rounding would explain zeros in their place, too. Entries that
    can be nothing but zero are left out of it, if there are others. ``endless``: the first entry in
    whose place the reference's own perturbed runs overflow, so that any number would do, or None.

    Checked by: tests/check/test_compare.py::test_verdict_states_the_rule_and_both_numbers.
    """

    name: str
    verdict: str
    z: float
    rms: float
    index: tuple[int, ...] | None = None
    theirs: float = np.nan
    certified: float = np.nan
    sigma: float = np.nan
    note: str = ""
    dtype: str = ""
    hidden: float = 0.0
    endless: tuple[int, ...] | None = None

    @property
    def blind(self) -> bool:
        """Whether no entry shows anything."""
        return self.hidden == 1


@dataclass(frozen=True)
class Verdict:
    """The verdict on every quantity; ``verdict`` is the worst of them, and *cannot be judged* if
    no gradient is wrong, but none shows anything, or the reference's own runs overflow in one.

    ``convention``: the misunderstanding that explains a result that is not rounding, or the
    form of a formula that explains one whose digits are lost, or "".
    ``dtype``: the type in which they computed; its unit roundoff is what was perturbed by. Of
    several, all; ``assumed`` says which quantity was judged by which, and why.

    Checked by: tests/check/test_compare.py::test_verdict_states_the_rule_and_both_numbers,
    ::test_limits.
    """

    verdict: str
    parts: tuple[Judgement, ...]
    convention: str
    dtype: str
    rule: str = RULE
    assumed: str = ""

    @property
    def passed(self) -> bool:
        """Whether every quantity asked for is there and explained by rounding; ``note`` names
        those that show nothing."""
        return self.verdict == EXPLAINED

    @property
    def worst(self) -> Judgement:
        """The quantity with the worst verdict, then the largest z."""
        return max(self.parts, key=lambda part: (_RANK[part.verdict], part.z))

    @property
    def note(self) -> str:
        """What is wrong with the worst quantity beside its numbers; or which quantities show
        nothing, because zero is right or the computation loses all of their digits, in a tenth
        of the entries or more."""
        parts = [part for part in self.parts if not constant(part.name)]
        zero = [part for part in parts if part.blind and part.certified == 0]
        mend = (
            "write it without the overflow (numpy.logaddexp(0, x) for log(1 + exp(x)), say), or"
            if AS_WRITTEN in self.rule
            else "judge"
        )
        hidden = ", ".join(
            part.name if part.blind else f"{100 * part.hidden:.3g}% of {part.name}"
            for part in parts
            if part.hidden >= HIDDEN and part not in zero and part.endless is None
        )
        zeros = ", ".join(part.name for part in zero)
        endless = ", ".join(
            f"{part.name}{list(part.endless) or ''}"
            for part in self.parts
            if part.endless is not None
        )
        return self.worst.note or "; ".join(
            filter(
                None,
                (
                    endless
                    and f"of {endless} this shows nothing: the reference, computed as it is "
                    f"written, overflows there, and any number would do; {mend} at smaller numbers",
                    hidden
                    and f"of {hidden} this shows nothing: in {self.dtype} rounding explains zeros, "
                    "too; judge in a wider type, or at smaller sizes",
                    zeros
                    and f"of {zeros} this shows nothing: zero is right here; judge at other sizes, "
                    "with other parameters",
                ),
            )
        )


def _names(what: str, value: Any) -> None:
    kind(what, value, (tuple, list), "a tuple of names of results, such as ('dWhh', 'dx')")
    for name in value:
        kind(f"{what}: an entry", name, str, "a name of a result, such as 'dWhh'")


NAMES = Rule(_names, (None, 1.5, object(), (1,), ([],)))
_RANK = {SHOWS_NOTHING: 0, EXPLAINED: 0, SUSPICIOUS: 1, NOT_ROUNDING: 2}


def judgement(
    name: str, theirs: Any, certified: Array, sigma: Array, form: Array | None = None
) -> Judgement:
    """One quantity, entry by entry; ``certified`` and ``sigma`` are float64 of one shape.

    An entry with sigma 0 must be equal. Of one whose sigma is not finite, because runs overflow,
    nothing is known unless it is equal. ``form``: the spread with another form of a formula,
    which counts where it is clearly more than rounding: four times what the form is usually off
    by would be beyond LIMITS[0] sigma. No small bug is excused by a form that changes nothing
    here. Never raises: what cannot be judged is not rounding, with a note that says why.
    """
    if form is not None:
        sigma = np.where(form > LIMITS[0] / 4 * sigma, form, sigma)

    def refuse(note: str, index: tuple[int, ...] | None = None) -> Judgement:
        return Judgement(name, NOT_ROUNDING, np.inf, np.inf, index, note=note)

    values = numbers(theirs)
    if values is None:
        return refuse(f"holds no array of real numbers: {unreadable(theirs)}")
    if values.shape != certified.shape:
        return refuse(f"has shape {values.shape}; need {certified.shape}")
    if not values.size:
        return Judgement(name, EXPLAINED, 0.0, 0.0, note="has no entries")
    bad = ~np.isfinite(values)
    if bad.any():
        if _swapped(theirs, certified, sigma):
            return refuse(SWAPPED)
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        return refuse(
            f"has {int(bad.sum())} entries that are not finite, the first at "
            f"{list(index)}: {values[index]}; certified is {certified[index]}",
            index,
        )
    if constant(name) and values.any() and not certified.any():
        return refuse(
            "belongs to a part that is constant, so that its gradient is 0; detach that "
            "part (.detach(), jax.lax.stop_gradient)"
        )
    difference = abs(values - certified)
    over = ~np.isfinite(sigma)
    sigma = np.where(over, np.inf, sigma)
    over &= difference > 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = np.where(difference == 0, 0, difference / sigma)
    index = tuple(int(i) for i in np.unravel_index(z.argmax(), z.shape))
    worst = float(z[index])
    with np.errstate(over="ignore"):
        rms = float(np.sqrt((z * z).mean()))
    shown = abs(certified) > LIMITS[0] * sigma
    zeros = (certified == 0) & (sigma == 0)
    hidden = 1 - float(shown.sum()) / (shown.size - zeros.sum()) if certified.any() else 1.0
    blind = hidden == 1
    far = worst / TAILS if blind and certified.any() and form is None else worst
    fine = SHOWS_NOTHING if blind else EXPLAINED
    verdict = fine if far <= LIMITS[0] else SUSPICIOUS if far <= LIMITS[1] else NOT_ROUNDING
    endless = tuple(int(i) for i in np.argwhere(over)[0]) if over.any() else None
    note = SWAPPED if verdict == NOT_ROUNDING and _swapped(theirs, certified, sigma) else ""
    return Judgement(
        name,
        verdict,
        worst,
        rms,
        index,
        float(values[index]),
        float(certified[index]),
        float(sigma[index]),
        note,
        hidden=hidden,
        endless=endless,
    )


SWAPPED = (
    "is right with the bytes of each number in reverse: big-endian numbers were read as "
    "little-endian ones, or the other way round"
)


def _swapped(theirs: Any, certified: Array, sigma: Array) -> bool:
    values = numbers(np.asarray(theirs).byteswap())
    with np.errstate(over="ignore", invalid="ignore"):
        room = LIMITS[0] * sigma
        return values is not None and bool(
            (abs(values - certified) <= room).all() and (abs(certified) > room).any()
        )


@takes(
    theirs=instance(Mapping, "a dict of arrays by name"),
    certified=instance((Certified, CertifiedFunction), "what refnet.exact.certify gives"),
    required=optional(NAMES),
    runs=count(2, 4096),
    seed=count(0, SEED),
)
def compare(
    theirs: Mapping[str, Any],
    certified: Certified | CertifiedFunction,
    *,
    dtype: Kind | None = None,
    required: tuple[str, ...] | None = None,
    sigma: Params | None = None,
    runs: int = RUNS,
    seed: int = 0,
    variants: dict[str, Params] | None = None,
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
    ``variants``: other readings of the parameters to try as explanations, by a label.
    ``readings``: the explanations to try, if many results are judged by one certificate.

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
    if required is None:
        required = tuple(f"d{name}" for name in certified.params)
    theirs = by_name(theirs, certified.named())
    types, assumed = judged_types(theirs, dtype)
    usual = types[""]
    if sigma is None:
        spreads = {kind: spread(certified, kind, runs, seed) for kind in set(types.values())}
        sigma = {name: spreads[types.get(name, usual)][name] for name in certified.named()}
    true = {name: value.value for name, value in certified.named().items()}
    convention = ""
    found = compare_values(theirs, true, sigma, usual, required)
    parts, verdict = found.parts, found.verdict
    in_numpy = all(isinstance(kind, np.dtype) for kind in types.values())
    if verdict in (SUSPICIOUS, NOT_ROUNDING) and in_numpy:
        parts, convention = _formed(parts, theirs, certified, sigma, types)
        verdict = _worst(parts)
    if verdict == NOT_ROUNDING and not convention and isinstance(certified, Certified):
        wrong = [part.name for part in found.parts if part.verdict == NOT_ROUNDING]
        finite = _finite(theirs, true)
        if finite.keys() == theirs.keys() & true.keys():  # nothing explains what is no number
            convention = (readings or Readings(certified, variants)).explain(
                finite, wrong, sigma, min(unit(types.get(name, usual)) for name in wrong)
            )
    parts = tuple(replace(part, dtype=str(types.get(part.name, usual))) for part in parts)
    judged = {str(types[name]) for name in theirs if name in types} or {str(usual)}
    rule = RULE if isinstance(certified, Certified) else RULE + AS_WRITTEN
    return Verdict(verdict, parts, convention, ", ".join(sorted(judged)), rule, assumed)


def compare_values(
    theirs: Mapping[str, Any], true: Params, sigma: Params, dtype: Kind, required: tuple[str, ...]
) -> Verdict:
    """The verdict alone, from certified values and their sigma."""
    parts = [
        judgement(name, theirs[name], true[name], sigma[name])
        if name in true
        else Judgement(name, NOT_ROUNDING, np.inf, np.inf, note=_no_result(name, true))
        for name in theirs
    ]
    parts += [
        Judgement(name, NOT_ROUNDING, np.inf, np.inf, note="is missing")
        for name in required
        if name not in theirs
    ]
    if not parts:
        parts = [Judgement("everything", NOT_ROUNDING, np.inf, np.inf, note="is missing")]
    return Verdict(_worst(parts), tuple(parts), "", str(asked(dtype)))


def _no_result(name: str, known: Params) -> str:
    near = get_close_matches(name, known, 1)
    return (
        f"is not the name of a result; these are {', '.join(known)}"
        + f": did you mean {''.join(near)}?" * bool(near)
    )


def _worst(parts: Sequence[Judgement]) -> str:
    gradients = [part for part in parts if part.name.startswith("d")] or parts
    if any(_RANK[part.verdict] for part in parts):
        return max((part.verdict for part in parts), key=_RANK.__getitem__)
    return (
        UNJUDGED
        if all(part.verdict == SHOWS_NOTHING for part in gradients)
        or any(part.endless is not None for part in gradients)
        else EXPLAINED
    )


def _finite(theirs: Mapping[str, Any], true: Params) -> Params:
    """The arrays of ``theirs`` that can be compared with anything."""
    known = {name: numbers(theirs[name]) for name in theirs if name in true}
    return {
        name: value
        for name, value in known.items()
        if value is not None and np.isfinite(value).all()
    }


def _formed(
    parts: tuple[Judgement, ...],
    theirs: Mapping[str, Any],
    certified: Certified | CertifiedFunction,
    sigma: Params,
    types: Mapping[str, Any],
) -> tuple[tuple[Judgement, ...], str]:
    """The judgements with a form's own spread for sigma, and the name of that form, if it
    explains all of them. What overflows where the reference does in the same type shows nothing.
    Otherwise the judgements as they are."""
    doubtful = [part for part in parts if _RANK[part.verdict]]
    true = {name: value.value for name, value in certified.named().items()}
    values = _finite(theirs, true)
    endless = {part.name for part in doubtful if part.note and part.index is not None}
    plain = once(certified, (), types[""]) if endless else {}
    if endless and endless <= _overflowing(plain):
        parts = tuple(
            replace(part, verdict=SHOWS_NOTHING, z=0.0, rms=0.0, note="", endless=part.index)
            if part.name in endless and _overflow_of(plain[part.name], theirs[part.name])
            else part
            for part in parts
        )
        return parts, f"the right result is beyond the range of {types['']} here"
    if isinstance(certified, CertifiedFunction):
        return parts, ""
    wrong = {part.name for part in doubtful}
    possible: list[str] = []
    for one in forms(certified.net):
        far = once(certified, (one,), types[""])
        if endless and endless <= (over := _overflowing(far)) and over & theirs.keys() <= wrong:
            return parts, f"{one}, which overflows here"
        # one run tells whether the form goes far enough at all
        enough = all(part.z < np.inf for part in doubtful) and any(
            abs(far[part.name]).max() * 100 > part.z * part.sigma for part in doubtful
        )
        if enough and not any(
            _kept(values[name] - true[name], sigma[name], far[name]) for name in values
        ):
            possible.append(one)
    for form in combined(tuple(possible)):
        own = {kind: deviation(certified, form, kind) for kind in set(types.values())}
        again = tuple(
            part
            if part not in doubtful
            else judgement(
                part.name,
                theirs[part.name],
                true[part.name],
                sigma[part.name],
                own[types.get(part.name, types[""])][part.name],
            )
            for part in parts
        )
        if _worst(again) in (EXPLAINED, UNJUDGED):
            worst = max(doubtful, key=lambda part: part.z)
            kind = types.get(worst.name, types[""])
            ulp = float(np.spacing(np.abs(np.asarray(worst.certified, kind))))
            lost = abs(worst.theirs - worst.certified) / ulp
            return again, (
                f"explained if {' and '.join(form)}, which loses {lost:.2g} ulp at "
                f"{worst.name}{list(worst.index or ())}"
            )
    return parts, ""


def _overflowing(far: Params) -> set[str]:
    return {name for name, value in far.items() if not np.isfinite(value).all()}


def _overflow_of(plain: Array, theirs: Any) -> bool:
    """Whether theirs is finite wherever the reference's own run is."""
    values = numbers(theirs)
    return values is not None and bool((np.isfinite(values) | ~np.isfinite(plain)).all())


def _kept(off: Array, sigma: Array, far: Array) -> bool:
    """Whether most entries that a form would be SHOWS sigma off are right without it: then it is
    not what was computed."""
    shows = abs(far) > SHOWS * sigma
    return bool(shows.sum() > 1 and (abs(off) <= LIMITS[0] * sigma)[shows].mean() > 0.5)
