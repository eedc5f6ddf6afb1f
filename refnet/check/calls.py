"""The judge in one call, and as an assertion of a test.

Checked by: tests/check/test_judge_calls.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from refnet.batch import Params
from refnet.check.arithmetic import Kind
from refnet.check.certificates import Case, case_of, certificate, readings_of, sigma_of
from refnet.check.conventions import Readings
from refnet.check.given import Foreign, Names, Results, by_name, judged_types, numbers
from refnet.check.noise import unit
from refnet.check.repeats import (
    Theirs,
    arrays_of,
    is_wrong_at,
    of_inputs,
    other_inputs,
    proof_of_state,
    rerolled,
    results,
    results_if_any,
)
from refnet.check.report import report
from refnet.check.search import Search
from refnet.check.shrink import SECONDS, NetCut, at_few_steps, with_smallest
from refnet.check.verdict import (
    EXPLAINED,
    NAMES,
    NOT_ROUNDING,
    SHOWS_NOTHING,
    SUSPICIOUS,
    Early,
    Explain,
    Verdict,
    by_type,
    compare,
    judged,
)
from refnet.common.arguments import optional
from refnet.common.process import serial_blas
from refnet.exact.enclose import Progress
from refnet.exact.running import Runs
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["assert_gradients", "judge"]


def judge(
    what: Net | Callable[..., Foreign],
    theirs: Results | Theirs,
    *inputs: Any,
    cotangent: ArrayLike | None = None,
    dtype: Kind | None = None,
    required: Names = None,
    progress: Progress | None = None,
    shrink: float = 0.0,
) -> Verdict:
    """Judge another implementation's gradients of a net, or of a function written in NumPy.

    ``what`` and ``inputs``: a net, its parameters and a batch; or a function and its arrays, with
    ``cotangent`` if it does not give one number (``refnet.exact.certify_function``).
    ``theirs``: arrays by name, or a function of copies of the same inputs that returns them: for
    a net loss, outputs, dWhh, dx, ..., for a function value and d + each argument's name. Of a net
    it may also take x, y and the mask one by one, as for the command ``check function``. It may
    reuse its arrays. The judge calls a function whose result is right once more and, for a net of
    usual size, with half of its parameters and inputs and with other targets and lengths: this
    shows state that it keeps between calls, and a mistake at those inputs alone. It calls one that
    is wrong at other sizes with random inputs, which tell a mistake from what looks like it here.
    ``dtype``, ``required`` and what is returned as in ``compare``; ``progress`` as in ``certify``.
    ``shrink``: the seconds that may be spent on the smallest sizes at which a mistake of a function
    still shows, which ``verdict.where`` then has.
    What the user's function raises comes with its own frames alone.

    The certificate and the sigmas of a net are stored for the next call with the same net and the
    same inputs, by their contents. A function is certified at each call, because values that it
    captures may have changed.

    >>> import numpy as np
    >>> def cube(x):
    ...     return (x**3).sum()
    >>> x = np.array([1.0, 2.0], np.float32)
    >>> judge(cube, lambda x: {"dx": 3 * x * x}, x).verdict
    'explained by rounding'
    >>> judge(cube, {"dx": 2 * x}, x).verdict
    'not rounding'

    Checked by: tests/check/test_judge_calls.py.
    """
    optional(NAMES).check("judge: required", required)
    case = case_of(what, inputs, cotangent, progress, dtype, required)
    if callable(theirs) and isinstance(what, Net):
        theirs = of_inputs(theirs)
    try:
        verdict, case = _judged(case, theirs)
    except Exception as error:
        frames = _of_the_user(error.__traceback__)
        if not frames:
            raise
        error.add_note(CALLED)
        raise error.with_traceback(frames)  # noqa: B904
    return with_smallest(verdict, case, theirs, shrink) if callable(theirs) else verdict


CALLED = "judge called this function, and leaves out refnet's own frames"


def _of_the_user(frames: TracebackType | None) -> TracebackType | None:
    """The frames of the user's function, from where it is called to where it calls refnet, or None
    if none was called."""
    callers = results.__code__, Runs.__call__.__code__
    called = False
    while frames and _is_refnets(frames):
        called |= frames.tb_frame.f_code in callers
        frames = frames.tb_next
    return _to_refnet(frames) if called else None


def _to_refnet(frames: TracebackType | None) -> TracebackType | None:
    if not frames or _is_refnets(frames):
        return None
    rest = _to_refnet(frames.tb_next)
    return TracebackType(rest, frames.tb_frame, frames.tb_lasti, frames.tb_lineno)


def _is_refnets(frames: TracebackType) -> bool:
    return str(frames.tb_frame.f_globals.get("__name__")).startswith("refnet.")


@serial_blas
def _judged(case: Case, theirs: Foreign) -> tuple[Verdict, Case]:
    """The verdict, and the case at whose inputs it is."""
    known = certificate(case).named()
    for name in case.required or ():
        if name not in known:
            raise ValueError(
                f"required: {name} is not the name of a result; these are {', '.join(known)}"
            )
    function = theirs if callable(theirs) else None
    changed: list[str] = []
    if function:
        theirs = results(function, case.inputs, changed)
    if not isinstance(theirs, Mapping):
        raise TypeError(
            f"judge: theirs {'returns' if function else 'is'} {type(theirs).__name__}; need a dict "
            f"of arrays by name, such as {', '.join(known)}, or a function that returns one"
        )
    readings = readings_of(case)
    if not function:
        return _narrow(_compared(theirs, case, readings.explain)[0], theirs, case), case
    verdict, case = _of_a_function(case, function, theirs, readings)
    verdict = _narrow(verdict, theirs, case)
    return replace(verdict, changed=tuple(changed)), case


def _narrow(verdict: Verdict, theirs: Results, case: Case) -> Verdict:
    """With that in its name, where float64 results of float32 inputs are those of float32."""
    every = (np.asarray(value).dtype for value in arrays_of(case.inputs).values())
    kinds = {kind for kind in every if kind.kind == "f"}
    name = verdict.convention or "perhaps part of the computation is in float32"
    may = verdict.verdict == NOT_ROUNDING and name.endswith("in float32")
    promoted = kinds == {np.dtype(np.float32)} and "float64" in verdict.dtype
    if case.dtype is not None or not (theirs and may and promoted):
        return verdict
    narrow, _ = _compared(theirs, replace(case, dtype="float32"))
    return replace(verdict, convention=name + NARROW) if narrow.passed else verdict


NARROW = (
    ", as the inputs are, and what it returns is float64: with dtype='float32' all is explained "
    "by rounding"
)


def _of_a_function(
    case: Case, function: Theirs, theirs: Results, readings: Readings
) -> tuple[Verdict, Case]:
    """The verdict on a function by its results, and by more calls of it."""
    explain = partial(
        readings.explain,
        rerolled=partial(rerolled, case, function) if _size(case) <= LARGE else None,
        elsewhere=cache(partial(_elsewhere, case, function)),
    )
    early = partial(_named_early, case, function) if _long(case) else None
    verdict, sigma = _compared(theirs, case, explain, early)
    if verdict.verdict == NOT_ROUNDING:
        few = at_few_steps(case, function, _wrong(verdict), verdict.where)
        return replace(verdict, where=(*verdict.where, *few)), case
    if verdict.passed:
        second, _ = _compared(results(function, case.inputs), case)
        if not second.passed:
            return replace(second, convention=SECOND), case
        return _of_other_inputs(case, function, sigma) or (verdict, case)
    return verdict, case


def _compared(
    theirs: Foreign, case: Case, explain: Explain | None = None, early: Early | None = None
) -> tuple[Verdict, Params]:
    """The verdict on results of a case, and the sigmas that it rests on."""
    certified = certificate(case)
    theirs = by_name(theirs, certified.named())
    types, assumed = judged_types(theirs, case.dtype)
    sigma = by_type(partial(sigma_of, case), certified, types)
    verdict = judged(theirs, certified, types, sigma, assumed, case.required, explain, early)
    return verdict, sigma


def _of_other_inputs(case: Case, function: Theirs, sigma: Params) -> tuple[Verdict, Case] | None:
    """The verdict at other inputs, if the results are wrong there, named by a mistake that shows
    there alone or by the proof that the function keeps something between calls."""
    if _size(case) > LARGE:
        return None
    for what, inputs in other_inputs(case):
        arrays = results_if_any(function, inputs, sigma)
        if not is_wrong_at(case, inputs, arrays, sigma):
            continue
        other = case_of(case.what, inputs, None, case.progress, case.dtype, case.required)
        verdict, sigmas = _compared(arrays, other)
        if verdict.verdict == NOT_ROUNDING:
            how = proof_of_state(case, function, inputs, arrays, sigma)
            name = KEPT.format(how) if how else _named_there(case, other, arrays, verdict, sigmas)
            return replace(verdict, convention=OTHER.format(what, name)), other
    return None


def _named_there(case: Case, other: Case, arrays: Results, verdict: Verdict, sigma: Params) -> str:
    """The name of a mistake that explains the results of the other case, and shows in no result of
    the first one."""
    if _long(case):
        return ""
    first, there = readings_of(case), readings_of(other)
    given = {
        name: value
        for name, theirs in arrays.items()
        if name in sigma and (value := numbers(theirs)) is not None
    }
    name = there.unseen(first, given, _wrong(verdict), sigma, unit(verdict.dtype.split(", ")[0]))
    return name and f": {name}"


def _elsewhere(case: Case, function: Theirs) -> Search | None:
    """The search among a function's results at other sizes and random inputs, or, if it fails
    there, at these sizes; None for a long case or a function of arrays, and if nothing is wrong."""
    if not isinstance(case.what, Net) or _long(case):
        return None
    for inputs in NetCut(case).elsewhere(case.dtype):
        try:
            arrays = results(function, inputs)
        except Exception:  # it runs at one size alone
            continue
        break
    else:
        return None
    other = case_of(case.what, inputs, None, None, case.dtype, ())
    searches: list[Search] = []

    def explain(given: Params, wrong: list[str], sigma: Params, u: float) -> str:
        with np.errstate(all="ignore"):
            searches.append(Search(readings_of(other), given, {*wrong}, sigma, u))
        return ""

    _compared(arrays, other, explain)
    return searches[0] if searches else None


OTHER = (
    "with {} it gives another result than these have, with those of the first call it was right{}"
)
KEPT = ": something is kept between calls, because {}"
SECOND = (
    "a second call with the same inputs gives another result, the first one's was right: "
    "something is kept between calls"
)


def _wrong(verdict: Verdict) -> set[str]:
    return {part.name for part in verdict.parts if part.verdict == NOT_ROUNDING}


EARLY = {"T": 19, "B": 3}
"""The sizes at which a function's mistake is looked for first if the case is long: not factors by
which a result is often wrong for another reason."""
LONG, LARGE = 10_000, 1_000_000
"""The steps, times sequences, times hidden units, above which a case is long, and above which a
function is not called with other inputs."""


def _long(case: Case) -> bool:
    return _size(case) > LONG


def _size(case: Case) -> int:
    """Steps, times sequences, times hidden units, of a recurrent net; 0 of all else."""
    return (
        int(case.inputs[1].x[..., 0].size * case.what.hidden)
        if isinstance(case.what, RecurrentNet)
        else 0
    )


CLEAR = 100
"""The sigmas from which on a mistake shows clearly: if it has no name there, it has none."""


def _named_early(case: Case, theirs: Theirs, wrong: set[str]) -> str | None:
    """The mistake's name from the first steps of some sequences, or "" if it has none; None if it
    does not show there clearly, in the quantities that are ``wrong`` and no others. A search there
    takes some seconds at most, and a minute over hundreds of steps."""
    cut = NetCut(case)
    sizes = {name: min(size, EARLY.get(name, size)) for name, size in cut.sizes.items()}
    certified, inputs = cut.at(sizes, SECONDS)
    try:
        arrays = results(theirs, inputs)
    except Exception:  # theirs runs at one size alone
        return None
    early = compare(arrays, certified, dtype=case.dtype, required=())
    clear = all(part.z >= CLEAR for part in early.parts if part.verdict == NOT_ROUNDING)
    if _wrong(early) != wrong or not early.convention and not clear:
        return None
    return early.convention and f"{early.convention} (at T = {sizes['T']}, B = {sizes['B']})"


def assert_gradients(
    what: Net | Callable[..., Foreign],
    theirs: Results | Theirs,
    *inputs: Any,
    allow_suspicious: bool = False,
    shrink: bool = True,
    **options: Any,
) -> Verdict:
    """``judge`` as an assertion, for a test of any runner; its arguments and ``options``.

    Raises AssertionError if the verdict is not *explained by rounding* (with
    ``allow_suspicious``, nor *suspicious*). The message has every quantity with its z,
    the worst entry with both numbers and sigma, the name of the mistake if there is one, the
    first time step at which states or gradients part, and, if ``theirs`` is a function and
    unless ``shrink`` is False, the smallest sizes at which the mistake still shows, for which up
    to 20 seconds are spent. Returns the verdict otherwise.

    >>> import numpy as np
    >>> def mean_square(x):
    ...     return (x * x).mean()
    >>> verdict = assert_gradients(mean_square, lambda x: {"dx": x / 2}, np.ones(4))

    Checked by: tests/check/test_judge_calls.py.
    """
    __tracebackhide__ = True  # pytest shows the caller's line, not this one
    verdict = judge(what, theirs, *inputs, shrink=SECONDS * shrink, **options)
    fine = {EXPLAINED, SHOWS_NOTHING} | ({SUSPICIOUS} if allow_suspicious else set())
    if verdict.verdict not in fine:
        raise AssertionError(report(verdict))
    return verdict
