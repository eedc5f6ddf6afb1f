"""The judgement on one quantity: can it be judged, and is its error rounding? And the verdict on
all quantities.

Element-wise tolerances and ULP counts cannot tell: cancellation makes correct float32
gradients differ by thousands of ulp in some entries, while a real bug hides in others. So
each entry is measured in its own sigma, the spread that perturbing every operation of the
same computation by its rounding error gives (``refnet.check.noise``).

Checked by: tests/check/test_compare.py.
"""

from dataclasses import dataclass, replace
from html import escape

import numpy as np

from refnet.batch import Array
from refnet.check.given import Foreign, constant, numbers, unreadable

__all__ = [
    "AS_WRITTEN",
    "EXPLAINED",
    "LIMITS",
    "NOT_ROUNDING",
    "RANK",
    "RULE",
    "SHOWS_NOTHING",
    "SUSPICIOUS",
    "TAILS",
    "UNJUDGED",
    "Judgement",
    "Verdict",
    "judgement",
    "unjudged",
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
"""How much wider the limits of an uninformative quantity are: errors that grow by chance from step
to step, until they are as large as the result, have a distribution with long tails. In 30 chaotic
nets, one run of 30 was often 10 to 18 times as far off as the root mean square of the others."""
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
HIDDEN = 0.1
"""The share of a quantity's entries that show nothing from which the note names it: less than a
gate's block of a stacked gradient, more than the few entries that cancel by chance."""
RANK = {SHOWS_NOTHING: 0, EXPLAINED: 0, SUSPICIOUS: 1, NOT_ROUNDING: 2}


@dataclass(frozen=True)
class Judgement:
    """One quantity: its verdict, and the worst entry with both numbers, its sigma and z.

    ``note`` says what else is wrong (missing, of another shape, not finite); then ``index``
    is None or that of the first such entry. ``rms`` is the root mean square of z. ``dtype``:
    the type in which this quantity is taken to be computed, or "". ``hidden``: the share of the
    entries that show nothing: rounding would explain zeros in their place, too. Entries whose
    right value is zero are left out of it, if there are others. ``overflow``: the first entry
    at which the reference's own perturbed runs overflow, so that any number would do, or None.

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
    overflow: tuple[int, ...] | None = None

    @property
    def uninformative(self) -> bool:
        """Whether no entry shows anything."""
        return self.hidden == 1


@dataclass(frozen=True, repr=False)
class Verdict:
    """The verdict on every quantity; ``verdict`` is the worst of them, and *cannot be judged* if
    no gradient is wrong, but none shows anything, or the reference's own runs overflow in one.

    ``convention``: the misunderstanding that explains a result that is not rounding, or the
    form of a formula that explains one whose digits are lost, or "".
    ``where``: of a result that is not rounding, sentences on which entries are wrong
    (``refnet.check.where``).
    ``changed``: the inputs that a function changes, which the ``note`` names.
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
    where: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        worst = self.worst
        text = self.convention or self.note
        numbers = f"worst {worst.name} with z = {worst.z:.3g}, of {len(self.parts)} in {self.dtype}"
        where = next((line for line in self.where if ": only " in line), "")
        text = text if where in text else f"{text}; {where}" if text else where
        chaos = next((f"; {line}" for line in self.where if "chaotic here" in line), "")
        return f"<{self.verdict}{': ' * bool(text)}{text}; {numbers}{chaos}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each quantity."""
        rows = [("quantity", "z", "verdict", "note")]
        rows += [(part.name, f"{part.z:.3g}", part.verdict, part.note) for part in self.parts]
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        table = "".join(f"<tr>{row}</tr>" for row in cells)
        lines = "".join(f"<p>{escape(line)}</p>" for line in (repr(self)[1:-1], *self.where))
        return f"{lines}<table>{table}</table>"

    @property
    def passed(self) -> bool:
        """Whether every quantity asked for is there and explained by rounding; ``note`` names
        those that show nothing."""
        return self.verdict == EXPLAINED

    @property
    def worst(self) -> Judgement:
        """The quantity with the worst verdict, then the largest z."""
        return max(self.parts, key=lambda part: (RANK[part.verdict], part.z))

    @property
    def note(self) -> str:
        """What is wrong with the worst quantity beside its numbers; or which quantities show
        nothing, because zero is right or the computation loses all of their digits, in a tenth
        of the entries or more; and the inputs that a function changes."""
        changed = f"the function changes its inputs: {', '.join(self.changed)}"
        return "; ".join(filter(None, (self._shown, changed * bool(self.changed))))

    @property
    def _shown(self) -> str:
        if self.worst.note:
            return self.worst.note
        repair = (
            "write it without the overflow (numpy.logaddexp(0, x) for log(1 + exp(x)), say), or"
            if AS_WRITTEN in self.rule
            else "judge"
        )
        shown = [part for part in self.parts if not constant(part.name)]
        zeros = [part.name for part in shown if part.uninformative and part.certified == 0]
        reasons = {
            "the reference, computed as it is written, overflows there, and any number would do; "
            f"{repair} at smaller numbers": [
                f"{part.name}{list(part.overflow) or ''}"
                for part in self.parts
                if part.overflow is not None
            ],
            f"in {self.dtype} rounding explains zeros, too; judge in a wider type, or at smaller "
            "sizes": [
                ("" if part.uninformative else f"{100 * part.hidden:.3g}% of ") + part.name
                for part in shown
                if part.hidden >= HIDDEN and part.overflow is None and part.name not in zeros
            ],
            "zero is right here; judge at other sizes, with other parameters": zeros,
        }
        return "; ".join(
            f"of {', '.join(names)} this shows nothing: {reason}"
            for reason, names in reasons.items()
            if names
        )


def unjudged(name: str, note: str, index: tuple[int, ...] | None = None) -> Judgement:
    """What cannot be judged is not rounding; ``note`` says why."""
    return Judgement(name, NOT_ROUNDING, np.inf, np.inf, index, note=note)


def judgement(
    name: str, theirs: Foreign, certified: Array, sigma: Array, form: Array | None = None
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
    values = numbers(theirs)
    note, index = _can_it_be_judged(name, theirs, values, certified, sigma)
    if note or values is None:
        return unjudged(name, note, index)
    if not values.size:
        return Judgement(name, EXPLAINED, 0.0, 0.0, note="has no entries")
    measured = _is_it_rounding(name, values, certified, sigma, widen=form is None)
    if measured.verdict == NOT_ROUNDING and _swapped(theirs, certified, sigma):
        return replace(measured, note=SWAPPED)
    return measured


def _can_it_be_judged(
    name: str, theirs: Foreign, values: Array | None, certified: Array, sigma: Array
) -> tuple[str, tuple[int, ...] | None]:
    """Why a quantity cannot be judged, or "", and the first entry that is not finite."""
    if values is None:
        return f"holds no array of real numbers: {unreadable(theirs)}", None
    if values.shape != certified.shape:
        return f"has shape {values.shape}; need {certified.shape}", None
    bad = ~np.isfinite(values)
    if bad.any():
        if _swapped(theirs, certified, sigma):
            return SWAPPED, None
        index = _first(bad)
        return (
            f"has {int(bad.sum())} entries that are not finite, the first at "
            f"{list(index)}: {values[index]}; certified is {certified[index]}"
        ), index
    if constant(name) and values.any() and not certified.any():
        return (
            "belongs to a part that is constant, so that its gradient is 0; detach that "
            "part (.detach(), jax.lax.stop_gradient)"
        ), None
    return "", None


def _is_it_rounding(
    name: str, values: Array, certified: Array, sigma: Array, widen: bool
) -> Judgement:
    """Measure each entry's error in its sigma; ``widen`` the limits if no entry shows anything."""
    difference = abs(values - certified)
    overflow = ~np.isfinite(sigma)
    sigma = np.where(overflow, np.inf, sigma)
    overflow &= difference > 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = np.where(difference == 0, 0, difference / sigma)
        rms = float(np.sqrt((z * z).mean()))
    index = _first(z)
    worst = float(z[index])
    shown = abs(certified) > LIMITS[0] * sigma
    zeros = certified == 0
    hidden = 1 - float(shown.sum()) / (shown.size - zeros.sum()) if certified.any() else 1.0
    size = worst / TAILS if hidden == 1 and certified.any() and widen else worst
    passed = SHOWS_NOTHING if hidden == 1 else EXPLAINED
    return Judgement(
        name,
        passed if size <= LIMITS[0] else SUSPICIOUS if size <= LIMITS[1] else NOT_ROUNDING,
        worst,
        rms,
        index,
        float(values[index]),
        float(certified[index]),
        float(sigma[index]),
        hidden=hidden,
        overflow=_first(overflow) if overflow.any() else None,
    )


def _first(where: Array) -> tuple[int, ...]:
    """The index of the first entry that is the largest: the first True one."""
    return tuple(int(i) for i in np.unravel_index(where.argmax(), where.shape))


SWAPPED = (
    "is right with the bytes of each number in reverse: big-endian numbers were read as "
    "little-endian ones, or the other way round"
)


def _swapped(theirs: Foreign, certified: Array, sigma: Array) -> bool:
    values = numbers(np.asarray(theirs).byteswap())
    with np.errstate(over="ignore", invalid="ignore"):
        room = LIMITS[0] * sigma
        return values is not None and bool(
            (abs(values - certified) <= room).all() and (abs(certified) > room).any()
        )
