"""Certificates, sigmas and readings of mistakes, computed once for a net with its inputs.

Checked by: tests/check/test_judge_calls.py, tests/check/test_store.py.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import token_bytes
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from refnet.batch import Array, Batch, Params
from refnet.check import store
from refnet.check.arithmetic import Kind, arithmetic
from refnet.check.conventions import Readings
from refnet.check.given import Names
from refnet.check.noise import spread
from refnet.common.arguments import short
from refnet.exact.enclose import Certified, Progress, certified_of, certify
from refnet.exact.functions import CertifiedFunction, certify_function
from refnet.exact.precision import Enclosure
from refnet.exact.running import leaves
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.nets.gradients import Net

__all__ = ["Case", "Given", "Judged", "case_of", "certificate", "readings_of", "sigma_of"]

Judged: TypeAlias = Any
"""A net, or a function written in NumPy."""
Given = tuple[Any, ...]
"""A net's parameters and batch, or a function's arguments."""
CASES = 8
"""How many cases memory holds, with two types each."""
WORTH = 0.2
"""What took fewer seconds than this is not stored on the disk."""


@dataclass(frozen=True)
class Case:
    """A net or function with its inputs; a net's is equal to another if everything that decides
    its certificate is, a function's to none.

    ``stored``: whether everything that decides it is in the digest, so that the disk may hold it;
    ``dtype`` and ``required`` as in ``compare``.
    """

    digest: str
    what: Judged
    stored: bool
    inputs: Given = field(compare=False)
    cotangent: Array | None = field(compare=False)
    progress: Progress | None = field(compare=False)
    dtype: Kind | None = field(compare=False)
    required: Names = field(compare=False)

    def __hash__(self) -> int:
        """Also of a callable object that has none."""
        return hash(self.digest)


def case_of(
    what: Judged,
    inputs: Given,
    cotangent: ArrayLike | None = None,
    progress: Progress | None = None,
    dtype: Kind | None = None,
    required: Names = None,
) -> Case:
    """The case; raises TypeError for what is neither a net nor a function."""
    if isinstance(what, Net):
        if len(inputs) != 2 or not isinstance(inputs[0], Mapping):
            raise TypeError(
                "judge: a net is judged with its parameters and a batch: judge(net, "
                "theirs, params, batch)"
            )
        if cotangent is not None:
            raise TypeError(
                "judge: a net is judged with its loss, and cotangent would have no "
                "effect; give the cotangents as y of a net with loss='none'"
            )
        if not isinstance(inputs[1], (tuple, list)) or not 2 <= len(inputs[1]) <= 5:
            raise TypeError(
                f"judge: the batch is {short(inputs[1])}; need refnet.Batch(x, y), or "
                "with a mask Batch(x, y, mask)"
            )
        inputs = dict(inputs[0]), Batch(*inputs[1])
        odd = what.smoothing or what.noise is not None or getattr(what, "zoneout", 0)
        if odd:
            raise ValueError(
                "judge: the net has smoothing, zoneout or noise; need none of them, which "
                "frameworks have in their own ways"
            )
        if 0 in (shape := np.shape(inputs[1].x)):
            raise ValueError(
                f"judge: the batch's x has shape {shape}; need at least one step, "
                "one sequence and one input, because nothing follows from none"
            )
    else:
        if not callable(what):
            raise TypeError(
                f"judge: {type(what).__name__} is neither a net of refnet nor a "
                "function written in NumPy"
            )
        arrays = leaves({str(n): value for n, value in enumerate(inputs)})
        if arrays and not any(value.size for value in arrays.values()):
            raise ValueError(
                "judge: the function's arrays have no entries, so that it has no "
                "gradient; need at least one number"
            )
    cotangent = None if cotangent is None else np.array(cotangent)
    is_net = isinstance(what, Net)
    digest = store.digest_of(repr(what), inputs).hex() if is_net else token_bytes().hex()
    stored = is_net and _is_plain(what)
    return Case(digest, what, stored, deepcopy(inputs), cotangent, progress, dtype, required)


def _is_plain(net: Net) -> bool:
    """Whether a net's text says all that decides what it computes: its parts are refnet's own."""
    return all(
        type(part).__module__.split(".")[0] in ("refnet", "builtins")
        and (not isinstance(part, Activation) or ACTIVATIONS.get(part.name) is part)
        for part in (net, *vars(net).values())
    )


def _key(case: Case, dtype: Kind | None = None) -> str | None:
    """The name under which a certificate, or its sigma in a type, lies on the disk."""
    return f"{case.digest} {'' if dtype is None else arithmetic(dtype)}" if case.stored else None


@lru_cache(CASES)
def certificate(case: Case) -> Certified | CertifiedFunction:
    """What is certified; without the balls themselves where it comes from the disk."""
    key = _key(case)
    arrays = None if key is None else store.read(key)
    if arrays is not None:
        return _restored(case, arrays)
    if not isinstance(case.what, Net):
        return certify_function(
            case.what, *case.inputs, cotangent=case.cotangent, progress=case.progress
        )
    certified = certify(case.what, *case.inputs, progress=case.progress)
    if key is not None and certified.seconds > WORTH and certified.kind == "ball":
        arrays = {"bits": np.array(certified.bits)}
        for name, enclosure in certified.named().items():
            arrays |= {f"value {name}": enclosure.value, f"radius {name}": enclosure.radius}
        store.write(key, arrays)
    return certified


def _restored(case: Case, arrays: Params) -> Certified:
    """The certificate of a net from the arrays on the disk, without the balls."""
    named = {
        name: Enclosure(np.empty(0, object), arrays[f"value {name}"], arrays[f"radius {name}"])
        for name in (full.removeprefix("value ") for full in arrays if full.startswith("value "))
    }
    params, batch = case.inputs
    return certified_of(case.what, params, batch, named, "ball", int(arrays["bits"]), 0.0)


@lru_cache(2 * CASES)
def sigma_of(case: Case, dtype: Kind) -> Params:
    """The spread of rounding in ``dtype``."""
    key = _key(case, dtype)
    sigma = None if key is None else store.read(key)
    if sigma is None:
        started = perf_counter()
        sigma = spread(certificate(case), dtype, progress=case.progress)
        if key is not None and perf_counter() - started > WORTH:
            store.write(key, sigma)
    return sigma


@lru_cache(CASES)
def readings_of(case: Case) -> Readings:
    """What may explain a wrong result."""
    return Readings(certificate(case))
