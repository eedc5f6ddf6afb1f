"""The judge in one call, and as an assertion of a test.

Checked by: tests/check/test_judge_calls.py.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from refnet.arguments import optional
from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.arithmetic import Kind
from refnet.check.cases import reference_results
from refnet.check.conventions import Readings
from refnet.check.given import judged_types, numbers
from refnet.check.kept import Case, case_of, certificate, readings_of, sigma_of
from refnet.check.report import report
from refnet.check.shrink import SECONDS, NetCut, shrunk
from refnet.check.verdict import (EXPLAINED, NAMES, NOT_ROUNDING, SHOWS_NOTHING, SUSPICIOUS,
                                  UNJUDGED, Verdict, compare, judgement)
from refnet.exact.enclose import Progress
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.process import serial_blas

__all__ = ["assert_gradients", "judge"]


def judge(what: Net | Callable[..., Any], theirs: Mapping[str, Any] | Callable[..., Any],
          *inputs: Any, cotangent: Any = None, dtype: Kind | None = None,
          required: tuple[str, ...] | None = None, progress: Progress | None = None) -> Verdict:
    """Judge another implementation's gradients of a net, or of a function written in NumPy.

    ``what`` and ``inputs``: a net, its parameters and a batch; or a function and its arrays, with
    ``cotangent`` if it does not give one number (``refnet.exact.certify_function``).
    ``theirs``: arrays by name, or a function of copies of the same inputs that returns them: for
    a net loss, outputs, dWhh, dx, ..., for a function value and d + each argument's name. It may
    use its arrays again. A function whose result is right is called once more and, of a net of
    usual size, with half of its parameters and inputs: what it keeps from call to call shows then.
    ``dtype``, ``required`` and what is returned as in ``compare``; ``progress`` as in ``certify``.

    The certificate and the sigmas are kept for the next call with the same net or function
    and the same inputs, by their contents; a function is the same if it is the same object and
    the numbers and functions that it takes from outside are equal. Where these cannot be read off
    its code (methods, other modules, files) it is certified at each call.

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
    return _judged(what, theirs, inputs, cotangent, dtype, required, progress)[0]


@serial_blas
def _judged(what: Any, theirs: Any, inputs: tuple[Any, ...], cotangent: Any = None,
            dtype: Kind | None = None, required: tuple[str, ...] | None = None,
            progress: Progress | None = None) -> tuple[Verdict, Mapping[str, Any], Case, Params]:
    """The verdict, their arrays, the case, and its sigmas."""
    optional(NAMES).check("judge: required", required)
    case = case_of(what, inputs, cotangent, progress)
    certified = certificate(case)
    for name in required or ():
        if name not in certified.named():
            raise ValueError(f"required: {name} is not the name of a result; these are "
                             f"{', '.join(certified.named())}")
    function = theirs if callable(theirs) else None
    if function:
        theirs = _results(function, case.inputs)
    if not isinstance(theirs, Mapping):
        raise TypeError(f"judge: theirs is {type(theirs).__name__}; need a dict of arrays by name, "
                        f"such as {', '.join(certified.named())}, or a function that returns one")
    types, _ = judged_types(theirs, dtype)
    sigma = {name: sigma_of(case, types.get(name, types[""]))[name] for name in certified.named()}
    verdict = compare(theirs, certified, dtype=dtype, required=required, sigma=sigma,
                      readings=_Unnamed() if function and _long(case) else readings_of(case))
    if function and _long(case) and verdict.verdict == NOT_ROUNDING and not verdict.convention:
        name = _named_early(case, function, dtype, _wrong(verdict))
        verdict = replace(verdict, convention=name) if name else compare(
            theirs, certified, dtype=dtype, required=required, sigma=sigma,
            readings=readings_of(case))
    if function and verdict.passed:
        second = _results(function, case.inputs)
        other = compare(second, certified, dtype=dtype, required=required, sigma=sigma,
                        readings=_Unnamed())
        if not other.passed:
            return replace(other, convention=SECOND), second, case, sigma
        verdict = _of_other_inputs(case, function, verdict, sigma)
    return verdict, theirs, case, sigma


def _results(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """What a function returns, of copies of the inputs, copied: it may use its arrays again."""
    found = function(*deepcopy(inputs))
    return {name: _copy(value) for name, value in found.items()} if isinstance(
        found, Mapping) else found


def _copy(value: Any) -> Any:
    try:
        return deepcopy(value) if isinstance(value, (list, tuple)) else np.array(value, subok=True)
    except Exception:  # what NumPy cannot read: the comparison says so
        return value


def _of_other_inputs(case: Case, function: Callable[..., Any], verdict: Verdict, sigma: Params
                     ) -> Verdict:
    """The verdict, which is no pass if the function does not follow its inputs: with others, a
    result is off by more than a quarter of the way to the former one, in the norm. What they
    should be is computed in float64, not certified; of LARGE cases it is not, as that would take
    longer than the verdict."""
    if not isinstance(case.what, Net) or _size(case) > LARGE:
        return verdict
    params, batch = case.inputs
    if any(value.dtype.kind == "O" for value in map(np.asarray, (*params.values(), batch.x))):
        return verdict
    former = {name: one.value for name, one in certificate(case).named().items()}
    # not the parts of a transition: half of an orthogonal matrix is none
    half = {name: value if "." in name else _half(value) for name, value in params.items()}
    others = {"half of the parameters and inputs": (half, batch._replace(x=_half(batch.x))),
              "other targets": (params, _other_targets(batch, former["outputs"].shape[-1]))}
    for what, inputs in others.items():
        try:
            found = _results(function, inputs)
        except Exception:  # it runs with some numbers alone
            continue
        found = {name: value for name, given in found.items()
                 if (value := numbers(given)) is not None} if isinstance(found, Mapping) else {}
        true = _true(case.what, *inputs)
        kept = {name for name in found.keys() & true.keys()
                if found[name].shape == np.shape(true[name])
                and not _follows(found[name], true[name], former[name], sigma[name])}
        if kept:
            parts = tuple(judgement(part.name, found[part.name], true[part.name],
                                    sigma[part.name])
                          if part.name in kept else part for part in verdict.parts)
            return replace(verdict, verdict=NOT_ROUNDING, parts=parts,
                           convention=OTHER.format(what))
    return verdict


def _follows(found: Array, true: Array, former: Array, sigma: Array) -> bool:
    with np.errstate(all="ignore"):
        way, off = np.linalg.norm(true - former), np.linalg.norm(found - true)
        return bool(off <= way / 4 or not np.linalg.norm(sigma) < way / 100)


def _true(net: Net, params: Params, batch: Batch) -> Params:
    return reference_results(net, {name: _wide(value) for name, value in params.items()},
                             batch._replace(x=_wide(batch.x), y=_wide(batch.y)))


def _other_targets(batch: Batch, classes: int) -> Batch:
    """The same x with half of the targets or, of classes, with those that count in another order
    (if there is one alone, with the next one); with a mask, sequences end a step earlier."""
    y, mask = np.array(batch.y), batch.mask
    counted = np.ones(y.shape, bool)
    if mask is not None:
        steps = mask.astype(bool)
        shorter = steps & (np.arange(len(steps))[:, None] < last_steps(steps) - 1)
        steps = np.where(shorter.any(axis=0), shorter, steps)
        mask = steps.astype(mask.dtype)
        if y.shape == steps.shape:
            counted = steps
    if y.dtype.kind not in "iu":
        return batch._replace(y=_half(y), mask=mask)
    own = y[counted]
    y[counted] = np.roll(own, 1) if (own != own[:1]).any() else (own + 1) % classes
    return batch._replace(y=y, mask=mask)


def _half(value: Any) -> Array:
    """Half of floats; integers, which name symbols or classes, as they are."""
    array = np.asarray(value)
    return array if array.dtype.kind in "iu" else np.asarray(array / 2, array.dtype)


def _wide(value: Any) -> Array:
    """Floats as float64; integers as they are."""
    array = np.asarray(value)
    return array if array.dtype.kind in "iu" else array.astype(float)


OTHER = ("with {} it gives another result than these have, with those of the first call it was "
         "right: something is kept between calls")
SECOND = ("a second call with the same inputs gives another result, the first one's was right: "
          "something is kept between calls")


def _wrong(verdict: Verdict) -> set[str]:
    return {part.name for part in verdict.parts if part.verdict == NOT_ROUNDING}


EARLY = {"T": 19, "B": 3}
"""The sizes at which a function's mistake is looked for first where the case is longer: no factors
that a result is often wrong by for another reason."""
LONG, LARGE = 10_000, 1_000_000
"""Steps, times sequences, times hidden units, from which on it is; and from which on a function is
not called with other inputs."""


class _Unnamed(Readings):
    """No explanations, for now."""

    def __init__(self) -> None:
        pass

    def explain(self, *_: Any) -> str:
        """None."""
        return ""


def _long(case: Case) -> bool:
    return _size(case) > LONG


def _size(case: Case) -> int:
    """Steps, times sequences, times hidden units, of a recurrent net; 0 of all else."""
    return int(case.inputs[1].x[..., 0].size * case.what.hidden) if isinstance(
        case.what, RecurrentNet) else 0


def _named_early(case: Case, theirs: Callable[..., Any], dtype: Kind | None, wrong: set[str]
                 ) -> str:
    """The mistake's name from the first steps of some sequences, or "" if it does not show there
    in the quantities that are ``wrong`` and no others, or has none: a search there takes a second,
    and half a minute over hundreds of steps."""
    cut = NetCut(case)
    sizes = {name: min(size, EARLY.get(name, size)) for name, size in cut.sizes.items()}
    certified, inputs = cut.at(sizes, SECONDS)
    try:
        arrays = _results(theirs, inputs)
    except Exception:  # theirs runs at one size alone
        return ""
    found = compare(arrays, certified, dtype=dtype, required=())
    return found.convention and _wrong(found) == wrong and (
        f"{found.convention} (at T = {sizes['T']}, B = {sizes['B']})") or ""


def assert_gradients(what: Net | Callable[..., Any],
                     theirs: Mapping[str, Any] | Callable[..., Any], *inputs: Any,
                     allow_suspicious: bool = False, shrink: bool = True, **options: Any
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
    verdict, arrays, case, sigma = _judged(what, theirs, inputs, **options)
    fine = {EXPLAINED, SHOWS_NOTHING} | ({SUSPICIOUS} if allow_suspicious else set())
    if verdict.verdict not in fine:
        smallest = None
        if shrink and callable(theirs) and verdict.verdict != UNJUDGED:
            smallest = shrunk(case, theirs, verdict, fine, options.get("dtype"),
                              options.get("required"))
        raise AssertionError(report(verdict, arrays, certificate(case), sigma, smallest))
    return verdict
