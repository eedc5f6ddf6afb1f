"""The judge in one call, and as an assertion of a test.

Certificates, sigmas and readings of mistakes are made once for a net or function with its inputs
and kept in memory for the next call.
Checked by: tests/test_calls.py.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from inspect import getclosurevars
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.conventions import Readings
from refnet.check.noise import spread
from refnet.check.verdict import (EXPLAINED, LIMITS, SUSPICIOUS, Judgement, Verdict, compare,
                                  judged_types)
from refnet.exact.enclose import Certified, certify
from refnet.exact.functions import CertifiedFunction, certify_function
from refnet.nets.gradients import Net

__all__ = ["assert_gradients", "judge"]

KEPT = 8
"""How many cases are kept, with two types each."""


@dataclass(frozen=True)
class _Case:
    """A net or function with its inputs; equal to another if everything that decides its
    certificate is."""

    what: Any
    digest: str
    inputs: tuple[Any, ...] = field(compare=False)
    cotangent: Any = field(compare=False)


def _pieces(value: Any) -> Iterable[bytes]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield repr(name).encode()
            yield from _pieces(value[name])
    elif isinstance(value, (tuple, list)):
        yield repr(len(value)).encode()
        for entry in value:
            yield from _pieces(entry)
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    else:
        yield repr(value.tolist() if isinstance(value, np.ndarray) else value).encode()


def _case(what: Any, inputs: tuple[Any, ...], cotangent: Any) -> _Case:
    held: dict[str, Any] = {}
    if isinstance(what, Net):
        if len(inputs) != 2 or not isinstance(inputs[0], Mapping):
            raise TypeError("judge: a net is judged with its parameters and a batch: judge(net, "
                            "theirs, params, batch)")
        inputs = inputs[0], Batch(*inputs[1])
    else:
        if not callable(what):
            raise TypeError(f"judge: {type(what).__name__} is neither a net of refnet nor a "
                            "function written in NumPy")
        try:
            found = getclosurevars(what)
            held = {name: value for name, value in {**found.globals, **found.nonlocals}.items()
                    if isinstance(value, (np.ndarray, np.generic, float, int, tuple, list, str))}
        except TypeError:  # an object that is called
            pass
    digest = sha256()
    for piece in _pieces((inputs, cotangent, held)):
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return _Case(what, digest.hexdigest(), deepcopy(inputs), deepcopy(cotangent))


@lru_cache(KEPT)
def _certificate(case: _Case) -> Certified | CertifiedFunction:
    if isinstance(case.what, Net):
        return certify(case.what, *case.inputs)
    return certify_function(case.what, *case.inputs, cotangent=case.cotangent)


@lru_cache(2 * KEPT)
def _sigma(case: _Case, dtype: Any) -> Params:
    return spread(_certificate(case), dtype)


@lru_cache(KEPT)
def _readings(case: _Case) -> Readings | None:
    certified = _certificate(case)
    return Readings(certified) if isinstance(certified, Certified) else None


def judge(what: Net | Callable[..., Any], theirs: Mapping[str, Any] | Callable[..., Any],
          *inputs: Any, cotangent: Any = None, dtype: Any = None,
          required: tuple[str, ...] | None = None) -> Verdict:
    """Judge another implementation's gradients of a net, or of a function written in NumPy.

    ``what`` and ``inputs``: a net, its parameters and a batch; or a function and its arrays, with
    ``cotangent`` if it does not give one number (``refnet.exact.certify_function``).
    ``theirs``: arrays by name, or a function of copies of the same inputs that returns them: of
    a net loss, outputs, dWhh, dx, ..., of a function value and d + each argument's name.
    ``dtype``, ``required`` and what is returned as in ``compare``.

    The certificate and the sigmas are kept for the next call with the same net or function
    and the same inputs, by their contents; a function is the same if it is the same object and
    the numbers that it takes from outside are equal.

    >>> def cube(x):
    ...     return (x**3).sum()
    >>> x = np.array([1.0, 2.0], np.float32)
    >>> judge(cube, lambda x: {"dx": 3 * x * x}, x).verdict
    'explained by rounding'
    >>> judge(cube, {"dx": 2 * x}, x).verdict
    'not rounding'

    Checked by: tests/test_calls.py.
    """
    case = _case(what, inputs, cotangent)
    certified = _certificate(case)
    if callable(theirs):
        theirs = theirs(*deepcopy(case.inputs))
    if not isinstance(theirs, Mapping):
        raise TypeError(f"judge: theirs is {type(theirs).__name__}; need a dict of arrays by name, "
                        f"such as {', '.join(certified.named())}, or a function that returns one")
    types, _ = judged_types(theirs, dtype)
    sigma = {name: _sigma(case, types.get(name, types[""]))[name] for name in certified.named()}
    return compare(theirs, certified, dtype=dtype, required=required, sigma=sigma,
                   readings=_readings(case))


def assert_gradients(what: Net | Callable[..., Any],
                     theirs: Mapping[str, Any] | Callable[..., Any], *inputs: Any,
                     allow_suspicious: bool = False, **options: Any) -> Verdict:
    """``judge`` as an assertion, for a test of any runner; its arguments and ``options``.

    Raises AssertionError if the verdict is not *explained by rounding* (with
    ``allow_suspicious``, if it is *not rounding*). The message has every quantity with its z,
    the worst entry with both numbers and sigma, and the name of the mistake if there is one.
    Returns the verdict otherwise.

    >>> def mean_square(x):
    ...     return (x * x).mean()
    >>> verdict = assert_gradients(mean_square, lambda x: {"dx": x / 2}, np.ones(4))

    Checked by: tests/test_calls.py.
    """
    verdict = judge(what, theirs, *inputs, **options)
    if verdict.verdict != EXPLAINED and not (allow_suspicious and verdict.verdict == SUSPICIOUS):
        raise AssertionError(_report(verdict))
    return verdict


def _report(verdict: Verdict) -> str:
    parts = sorted(verdict.parts, key=lambda part: -part.z)
    width = max(len(part.name) for part in parts)
    lines = [f"gradients in {verdict.dtype} are {verdict.verdict}"]
    lines += [f"  {part.name:{width}}  z = {part.z:<9.3g} {part.verdict}"
              f"{_entry(part, verdict.worst)}" for part in parts]
    lines.append(f"z = |theirs - certified| / sigma: up to {LIMITS[0]} is rounding, above "
                 f"{LIMITS[1]} is not")
    if verdict.convention:
        lines.append(f"the mistake that explains it: {verdict.convention}")
    return "\n".join(lines)


def _entry(part: Judgement, worst: Judgement) -> str:
    if part.note:
        return f": {part.note}"
    if part is not worst or part.index is None:
        return ""
    return (f", worst at {list(part.index)}: theirs {part.theirs:.9g}, certified "
            f"{part.certified:.9g}, sigma {part.sigma:.2g}")
