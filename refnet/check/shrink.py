"""The smallest sizes at which a mistake still shows.

The search resembles Hypothesis's shrinking: it raises all sizes together from 1 until the mistake
shows, then lowers each size alone as far as the mistake still shows, until no size goes lower. A
mistake does not show at sizes at which the function fails to run, returns results of other shapes,
or results that are not finite, is wrong in a quantity that was right, or, of a function, right in a
gradient that was wrong. Steps and sequences are cut from the given ones; a net of other widths gets
new random parameters. In a function's arrays, axes of one length are cut together, except those of
the cotangent, which the judged function does not receive.
Checked by: tests/check/test_judge_calls.py.
"""

from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import count
from time import process_time
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.check.arithmetic import Kind, arithmetic
from refnet.check.cases import drawn, held, random_batch, random_final, random_params
from refnet.check.certificates import Case, Given
from refnet.check.given import Results, by_name, judged_types
from refnet.check.noise import spread
from refnet.check.report import quantities
from refnet.check.verdict import (
    EXPLAINED,
    NOT_ROUNDING,
    SHOWS_NOTHING,
    UNJUDGED,
    Verdict,
    by_type,
    compare_values,
    gradients_of,
)
from refnet.check.where import located
from refnet.exact.enclose import Certified, certify
from refnet.exact.functions import CertifiedFunction, certify_function
from refnet.exact.precision import float_values
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet, plain

__all__ = ["NetCut", "at_few_steps", "with_smallest"]

SECONDS = 20.0
FEW = 4
"""A fault is looked for at fewer steps than this one by one."""
RUNS = 12
"""Runs of the spread: they give sigma to a fifth, and a mistake that shows is far beyond that."""

FINE = {EXPLAINED, SHOWS_NOTHING, UNJUDGED}
"""The verdicts on what is not wrong."""
Sizes = dict[Any, int]
Theirs = Callable[..., Results]


def with_smallest(verdict: Verdict, case: Case, theirs: Theirs, seconds: float) -> Verdict:
    """The verdict, to whose ``where`` the smallest sizes are added that still show the mistake: a
    gradient that was wrong (or, if none was, another quantity) still is, of a function all of
    them, and nothing else is. The verdict as it is, if no smaller sizes do or the search takes more
    than ``seconds``."""
    if not seconds or verdict.verdict in FINE:
        return verdict

    def off(judged: Verdict) -> set[str]:
        return {part.name for part in judged.parts if part.verdict not in FINE}

    is_net = isinstance(case.what, Net)
    cut = NetCut(case) if is_net else _FunctionCut(case)
    wrong = {name for name in off(verdict) if name.startswith("d")} or off(verdict)
    end = process_time() + seconds
    tried: dict[tuple[int, ...], Verdict | None] = {}

    def shows(sizes: Sizes) -> bool:
        key = tuple(sizes.values())
        if key not in tried:
            tried[key] = None
            try:
                if process_time() < end:
                    certified, inputs = cut.at(sizes, seconds)
                    tried[key] = _verdict(case, certified, inputs, theirs)
            except Exception:  # of their function too: it does not run at these sizes
                pass
        outcome = tried[key]
        return (
            outcome is not None
            and _unread(outcome) <= _unread(verdict)
            and off(outcome) <= off(verdict)
            and (bool(off(outcome) & wrong) if is_net else wrong <= off(outcome))
        )

    now = cut.sizes
    for most in _rising(max(now.values(), default=0)):
        small = {name: min(size, most) for name, size in now.items()}
        if shows(small):
            now = small
            break
    before: Sizes = {}
    while before != now:
        before = now
        for name in now:
            now = next(
                (smaller for size in _rising(now[name]) if shows(smaller := {**now, name: size})),
                now,
            )
    outcome = tried.get(tuple(now.values()))
    if outcome is None:
        return verdict
    lines = (
        f"the smallest sizes at which it still shows, of {len(tried)} tried: {cut.text(now)}",
        *quantities(outcome),
        *(f"  {line}" for line in outcome.where),
    )
    return replace(verdict, where=(*verdict.where, *lines))


def _unread(verdict: Verdict) -> set[str]:
    """The names of what is missing, of another shape, no array of numbers or not finite."""
    return {part.name for part in verdict.parts if part.note}


def _rising(end: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, ... below ``end``."""
    size = 1
    while size < end:
        yield size
        size += 1 if size < 4 else (size & -size) // (1 if size & (size - 1) else 2)


def _verdict(
    case: Case, certified: Certified | CertifiedFunction, inputs: Given, theirs: Theirs
) -> Verdict:
    """The verdict, without a name, at other sizes of a case."""
    named = certified.named()
    arrays = by_name(theirs(*deepcopy(inputs)), named)
    types, _ = judged_types(arrays, case.dtype)
    sigma = by_type(partial(spread, certified, runs=RUNS), certified, types)
    verdict = compare_values(
        arrays,
        float_values(named),
        sigma,
        types[""],
        gradients_of(certified) if case.required is None else case.required,
    )
    return replace(verdict, where=located(arrays, verdict.parts, sigma, certified, conclude=False))


def at_few_steps(
    case: Case, theirs: Theirs, wrong: set[str], known: Collection[str]
) -> tuple[str, ...]:
    """Sentences, none of them ``known``, on where a recurrent net's results are wrong at the fewest
    steps that show the fault: there the error has not yet spread to other gates and units. Steps at
    which a result is wrong that is not among the ``wrong`` ones do not count."""
    steps = NetCut(case).sizes.get("T", 0) if isinstance(case.what, Net) else 0
    for T in range(1, min(steps, FEW)):
        cut = NetCut(case)
        try:
            certified, inputs = cut.at({**cut.sizes, "T": T}, SECONDS)
            verdict = _verdict(replace(case, required=()), certified, inputs, theirs)
        except Exception:  # of their function too: it does not run at these sizes
            continue
        off = {part.name for part in verdict.parts if part.verdict == NOT_ROUNDING}
        if off and off <= wrong:
            lines = [line for line in verdict.where if ": only " in line and line not in known]
            if not lines and T > 1 and not any(": only " in line for line in known):
                return (f"with T = {T - 1} all is right, with T = {T} not",)
            return tuple(f"at T = {T}: {line}" for line in lines)
    return ()


class NetCut:
    """A net's case at smaller sizes."""

    def __init__(self, case: Case) -> None:
        self.net: Net = case.what
        self.params, self.batch = case.inputs
        net = self.net
        if isinstance(net, RecurrentNet):
            T, B, D = self.batch.x.shape
            self.sizes: Sizes = {"T": T, "B": B, "H": net.hidden, "D": D, "C": net.outputs}
            if isinstance(net, StackedNet):
                self.sizes["layers"] = net.layers
            if net.readout == "none":
                del self.sizes["C"]
            if self.batch.weights is not None:  # which may be those of classes
                self.sizes = {"T": T, "B": B}
        else:
            self.sizes = {
                "B": len(self.batch.x),
                "D": net.widths[0],
                "H": max(net.widths[1:-1], default=0),
                "C": net.widths[-1],
                "layers": net.depth,
            }
            if not net.depth:  # a linear net
                del self.sizes["H"], self.sizes["layers"]

    def at(self, sizes: Sizes, seconds: float) -> tuple[Certified, Given]:
        """What is certified at these sizes, and the parameters and batch."""
        net, params, batch = self.net, self.params, self.batch
        widths = {name: size for name, size in sizes.items() if name not in ("T", "B")}
        T, B = sizes.get("T"), sizes["B"]
        if any(self.sizes[name] != size for name, size in widths.items()):
            net = self._narrower(widths)
            params, batch = self._drawn(net, T or 0, B)
        x, y = (self._sliced(part, T, B) for part in batch[:2])
        mask, weights, final = batch[2:]
        if weights is not None:
            weights = weights[:T, :B] if weights.ndim == 2 else weights[:B]
        if final is not None:
            final = {name: value[..., :B, :] for name, value in final.items()}
        batch = Batch(x, y, None if mask is None else mask[:T, :B], weights, final)
        params = {
            name: value[..., :B, :]
            if plain(name) == "h0"
            and value.shape[-2:-1] == (self.sizes["B"],)
            and value.ndim == max(map(len, net.shapes[name]))
            else value
            for name, value in params.items()
        }
        return certify(net, params, batch, max_seconds=seconds), (params, batch)

    def _narrower(self, widths: Sizes) -> Net:
        net, H = self.net, widths.get("H", 0)  # a linear net has none
        if isinstance(net, FeedforwardNet):
            return replace(net, widths=(widths["D"], *[H] * widths.get("layers", 0), widths["C"]))
        outputs = widths.get("C", H * (1 + getattr(net, "bidirectional", False)))
        options: dict[str, Any] = {"inputs": widths["D"], "hidden": H, "outputs": outputs}
        if "layers" in widths:
            options["layers"] = widths["layers"]
        return replace(net, **options)

    def _drawn(self, net: Net, T: int, B: int) -> tuple[Params, Batch]:
        """Random arrays of the same names, types and mask."""
        rng, kind = np.random.default_rng(0), self.batch.x.dtype
        params = random_params(net, rng, kind)
        for name, shapes in net.shapes.items():
            if name in self.params and name not in params:
                axes = next(axes for axes in shapes if len(axes) == self.params[name].ndim)
                params[name] = drawn(axes, B, rng, kind)
        batch = random_batch(net, rng, kind, T, B)._replace(mask=self.batch.mask)
        if self.batch.final is not None and isinstance(net, RecurrentNet):
            batch = batch._replace(final=random_final(net, rng, kind, B))
        return params, batch

    def elsewhere(self, judged: Kind | None) -> Iterator[Given]:
        """Random parameters and inputs of the net: at other T and B, and at these. None of a net
        that constrains its parameters."""
        rng, known = np.random.default_rng(1), {*self.sizes.values()}
        constrained = getattr(self.net, "transition", None) is not None
        if self.batch.weights is not None or self.batch.x.dtype.kind != "f" or constrained:
            return
        B = next(n for n in count(6 if "T" in self.sizes else 16) if n not in known)
        T = next(n for n in count(B + 1) if n not in known)
        for steps, examples in ((T, B), (self.sizes.get("T", 0), self.sizes["B"])):
            params, batch = self._drawn(self.net, steps, examples)
            if self.batch.mask is not None:
                lengths = rng.permutation(np.maximum(steps - np.arange(examples), 1))
                batch = batch._replace(mask=np.arange(steps)[:, None] < lengths)
            yield (params, batch) if judged is None else held(arithmetic(judged), params, batch)

    @staticmethod
    def _sliced(part: Array, T: int | None, B: int) -> Array:
        every = T is not None and (part.ndim == 3 or part.ndim == 2 and part.dtype.kind in "iu")
        return part[:T, :B] if every else part[:B]

    @staticmethod
    def text(sizes: Sizes) -> str:
        return ", ".join(f"{name} = {size}" for name, size in sizes.items())


class _FunctionCut:
    """A function's case at smaller sizes: the lengths that its arrays' axes have."""

    def __init__(self, case: Case) -> None:
        self.case = case
        arrays = [value for value in case.inputs if isinstance(value, np.ndarray)]
        lengths = {n for value in arrays for n in value.shape if n > 1} - {
            *getattr(case.cotangent, "shape", ())
        }
        self.sizes: Sizes = {n: n for n in sorted(lengths, reverse=True)}

    def _cut(self, value: Any, sizes: Sizes) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return value[tuple(slice(sizes.get(n, n)) for n in value.shape)]

    def at(self, sizes: Sizes, seconds: float) -> tuple[CertifiedFunction, Given]:
        inputs = tuple(self._cut(value, sizes) for value in self.case.inputs)
        return certify_function(
            self.case.what, *inputs, cotangent=self.case.cotangent, check=False, max_seconds=seconds
        ), inputs

    def text(self, sizes: Sizes) -> str:
        shapes = [
            str(self._cut(value, sizes).shape)
            for value in self.case.inputs
            if isinstance(value, np.ndarray)
        ]
        return f"arguments of shape {', '.join(shapes)}"
