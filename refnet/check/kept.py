"""Certificates, sigmas and readings of mistakes, made once for a net or function with its inputs.

Checked by: tests/check/test_judge_calls.py, tests/check/test_store.py.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from secrets import token_bytes
from time import perf_counter
from typing import Any

import numpy as np

from refnet.arguments import short
from refnet.batch import Batch, Params
from refnet.check.arithmetic import Kind, arithmetic
from refnet.check.conventions import Readings
from refnet.check.noise import spread
from refnet.check.store import described, keep, kept, pieces
from refnet.exact.enclose import Certified, Enclosure, Progress, certified_of, certify
from refnet.exact.functions import CertifiedFunction, certify_function
from refnet.exact.running import arguments_of
from refnet.nets.gradients import Net

__all__ = ["Case", "case_of", "certificate", "readings_of", "sigma_of"]

KEPT = 8
"""How many cases are kept in memory, with two types each."""
WORTH = 0.2
"""What took fewer seconds than this is not kept on the disk."""


@dataclass(frozen=True)
class Case:
    """A net or function with its inputs; equal to another if everything that decides its
    certificate is."""

    digest: str
    what: Any
    known: bool
    """Whether everything that decides it is in the digest, so that it may be kept on the disk."""
    inputs: tuple[Any, ...] = field(compare=False)
    cotangent: Any = field(compare=False)
    progress: Progress | None = field(compare=False)

    def __hash__(self) -> int:
        """Also of a callable object that has none."""
        return hash(self.digest)


def case_of(what: Any, inputs: tuple[Any, ...], cotangent: Any, progress: Progress | None) -> Case:
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
        if not isinstance(inputs[1], (tuple, list)) or len(inputs[1]) not in (2, 3):
            raise TypeError(
                f"judge: the batch is {short(inputs[1])}; need refnet.Batch(x, y), or "
                "with a mask Batch(x, y, mask)"
            )
        inputs = dict(inputs[0]), Batch(*inputs[1])
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
        if inputs and not any(np.size(value) for value in inputs):
            raise ValueError(
                "judge: the function's arrays have no entries, so that it has no "
                "gradient; need at least one number"
            )
    cotangent = None if cotangent is None else np.array(cotangent)
    own = described(what if isinstance(what, Net) else (what, inputs))
    digest = sha256()
    for piece in (*pieces((inputs, cotangent)), *(own or ())):
        digest.update(len(piece).to_bytes(8, "little") + piece)
    if own is None and not isinstance(what, Net):  # equal to no other case
        digest.update(token_bytes())
    return Case(digest.hexdigest(), what, own is not None, deepcopy(inputs), cotangent, progress)


def _key(case: Case, dtype: Kind | None = None) -> str | None:
    """The name under which a certificate, or its sigma in a type, lies on the disk."""
    return f"{case.digest} {'' if dtype is None else arithmetic(dtype)}" if case.known else None


@lru_cache(KEPT)
def certificate(case: Case) -> Certified | CertifiedFunction:
    """What is certified; without the balls themselves where it comes from the disk."""
    key = _key(case)
    arrays = None if key is None else kept(key)
    if arrays is not None:
        return _remade(case, arrays)
    if isinstance(case.what, Net):
        made: Certified | CertifiedFunction = certify(
            case.what, *case.inputs, progress=case.progress
        )
    else:
        made = certify_function(
            case.what, *case.inputs, cotangent=case.cotangent, progress=case.progress
        )
    if key is not None and made.seconds > WORTH and made.kind == "ball":
        keep(
            key,
            {
                "bits": np.array(made.bits),
                "constants": np.array(getattr(made, "constants", ()), float),
                **{
                    f"{part} {name}": getattr(one, part)
                    for name, one in made.named().items()
                    for part in ("value", "radius")
                },
            },
        )
    return made


def _remade(case: Case, arrays: Params) -> Certified | CertifiedFunction:
    none = np.empty(0, object)
    named = {
        name: Enclosure(none, value, arrays[f"radius {name}"])
        for part, name, value in (
            (*full.partition(" ")[::2], value) for full, value in arrays.items()
        )
        if part == "value"
    }
    bits = int(arrays["bits"])
    if isinstance(case.what, Net):
        params, batch = case.inputs
        return certified_of(case.what, params, batch, named, "ball", bits, 0.0)
    value = named.pop("value")
    return CertifiedFunction(
        case.what,
        arguments_of(case.what, case.inputs),
        case.cotangent,
        value,
        {name[1:]: one for name, one in named.items()},
        tuple(arrays["constants"].tolist()),
        "ball",
        bits,
        0.0,
    )


@lru_cache(2 * KEPT)
def sigma_of(case: Case, dtype: Kind) -> Params:
    """The spread of rounding in ``dtype``."""
    key = _key(case, dtype)
    found = None if key is None else kept(key)
    if found is None:
        started = perf_counter()
        found = spread(certificate(case), dtype, progress=case.progress)
        if key is not None and perf_counter() - started > WORTH:
            keep(key, {f"sigma {name}": value for name, value in found.items()})
        return found
    return {name.removeprefix("sigma "): value for name, value in found.items()}


@lru_cache(KEPT)
def readings_of(case: Case) -> Readings | None:
    """What may explain a wrong result; of a function nothing is known."""
    certified = certificate(case)
    return Readings(certified) if isinstance(certified, Certified) else None
