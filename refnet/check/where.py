"""Where a result is wrong: the pattern of the entries that are not rounding, in words.

Every entry of a result is right or wrong, because its sigma is known. A sentence gives the indices
of the wrong ones along each axis (gate, unit, input, step, example, class) or their pattern over
two axes (the diagonal, the steps of the padding), and how they follow from the certified ones: a
factor, another order. The results that are right tell which part of the computation is right.

Checked by: tests/check/test_where.py.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from refnet.batch import Array, Params, last_steps
from refnet.check.entries import Axis, Wrong, plural, relation, value, wrong_of
from refnet.check.given import Results, numbers
from refnet.check.judgement import LIMITS, RANK, Judgement
from refnet.check.noise import Certificate
from refnet.exact.enclose import Certified
from refnet.exact.precision import float_values

__all__ = ["indices", "located", "phrases"]

MOST = 0.9
"""The share of the entries from which on the wrong ones are everywhere."""


def located(
    theirs: Results,
    parts: Iterable[Judgement],
    sigma: Params,
    certified: Certificate,
    conclude: bool = True,
) -> tuple[str, ...]:
    """Sentences on where ``theirs`` are wrong, by their judgements ``parts``: first which results
    are right; then, for each wrong one, which entries are wrong and how they follow from the
    certified ones. With ``conclude``, the first sentence also says which part of the computation
    the right results rule out. At sizes of 1, where a step has no next one, they rule out
    nothing."""
    true = float_values(certified.named())
    wrong = {part.name for part in parts if RANK[part.verdict]}
    known = {
        name: value
        for name in true
        if name in theirs and (value := numbers(theirs[name])) is not None
    }
    together: dict[str, list[str]] = {}
    for name, phrase in phrases(known, true, sigma, wrong, certified):
        together.setdefault(phrase, []).append(name)
    lines = [f"{', '.join(names)}: {phrase}" for phrase, names in together.items()]
    right = [name for name in known if name not in wrong]
    if lines:
        first = f"right: {', '.join(right) or 'nothing'}"
        if conclude and isinstance(certified, Certified):
            first += _stage(right, wrong, set(certified.states))
        lines.insert(0, first)
    return (*lines, *_parting(_shaped(known, true, sigma, wrong, certified), certified))


def phrases(
    theirs: Params, true: Params, sigma: Params, wrong: set[str], certified: Certificate
) -> Iterator[tuple[str, str]]:
    """Each wrong result with its wrong entries in words, and after a semicolon how these follow
    from the certified ones."""
    with np.errstate(all="ignore"):
        for part in _shaped(theirs, true, sigma, wrong, certified):
            if part.off.any():
                yield part.name, _phrase(part, certified)


def _shaped(
    theirs: Params, true: Params, sigma: Params, wrong: set[str], certified: Certificate
) -> list[Wrong]:
    return [
        wrong_of(name, theirs[name], true[name], sigma[name], certified)
        for name in true
        if name in wrong and name in theirs and theirs[name].shape == true[name].shape
    ]


def _stage(right: Sequence[str], wrong: set[str], states: set[str]) -> str:
    """Which part of the computation is at fault, as the right results tell."""
    forward, readout = {"loss", "outputs", *states}, {"dWhy", "dby"}
    if wrong & forward:
        if wrong & forward == {"loss"} and "outputs" in right:
            return ": the fault is in the loss, after the outputs"
        if states & set(right) and not states & wrong:
            return ": the fault is in the read-out, after the states"
        known = (states | {"outputs"}) & {*right, *wrong}
        return f": the fault is in the forward pass{'' if known else ' or in the loss'}"
    passed = "; the forward pass is right" * bool(forward & set(right))
    if wrong <= readout:
        return f"{passed}: the fault is in the read-out's gradients"
    if wrong == {"dh0"}:
        return f"{passed}: only the gradient that reaches the initial state shows the fault"
    if wrong == {"dx"}:
        return f"{passed}; the gradient that is carried is right: the fault is in dx alone"
    if "dx" in right:
        alone = any("." in name for name in wrong)
        part = f"{', '.join(sorted(wrong))} alone" if alone else "a sum"
        part = f"the sums {', '.join(sorted(wrong))}" if readout & wrong else part
        return f"{passed}; the gradient that is carried is right: the fault is in {part}"
    if readout <= wrong and set(right) <= forward:
        return f"{passed}: the fault starts at the loss's gradient in the outputs"
    below = _below(right, wrong)
    if below and not readout & wrong:
        return f"{passed}: the fault is in {below}"
    if readout & set(right) and not readout & wrong:
        return f"{passed}: the fault is in the backward pass, after the read-out's gradients"
    return passed


def _below(right: Sequence[str], wrong: set[str]) -> str:
    """Where the fault is in a stack whose upper layers are right and whose lower ones are not."""
    of_right, of_wrong = (
        {int(number) for name in names for number in re.findall(r"_l(\d+)", name) if name[0] == "d"}
        for names in (right, wrong)
    )
    if not of_right or not of_wrong or max(of_wrong) >= min(of_right):
        return ""
    return f"what layer {min(of_right)} hands down, or in layer {max(of_wrong)}"


def _parting(wrong: Sequence[Wrong], certified: Certificate) -> Iterator[str]:
    """The first step, forward in time for states and outputs and backward for dx, at which they
    part from what is certified."""
    for part in wrong:
        steps = part.true.shape[:1] if part.axes and part.axes[0].noun == "step" else ()
        off = part.off.reshape(*steps, -1).any(axis=-1)
        if not steps or not off.any():
            continue
        first, last = np.flatnonzero(off)[[0, -1]]
        T = len(certified.batch.x) if isinstance(certified, Certified) else steps[0]
        of = f"of {T} steps"
        if part.name == "dx":
            yield f"going back in time, dx parts first at dx[{last}], {of}"
        else:
            of = ", in the order in which it runs" * part.name.endswith("_reverse") + f", {of}"
            yield f"going forward in time, {part.name} parts first at {part.name}[{first}]{of}"


def _phrase(part: Wrong, certified: Certificate) -> str:
    """The wrong entries of one result, and how they follow from the certified ones."""
    off = part.off
    if not off.ndim:
        return value(part)
    box = [
        np.flatnonzero(off.any(axis=tuple(n for n in range(off.ndim) if n != axis)))
        for axis in range(off.ndim)
    ]
    if all(len(chosen) == 1 for chosen in box) and off.size > 1:
        where = f"only the entry {_entry(part, box)}"
    else:
        blank = ~off & (abs(part.true) <= LIMITS[0] * part.sigma)
        pairs, text = _pair(part, off, blank, certified)
        texts = [
            indices(axis, chosen, size, certified, part.name)
            for n, (axis, chosen, size) in enumerate(zip(part.axes, box, off.shape))
            if n not in pairs and not np.delete(blank, chosen, axis=n).all()
        ] + [text] * bool(text)
        only = "only " * (not texts or texts[0][:4] != "all ")
        where = only + ", ".join(texts) if texts else _share(part)
        if texts and not text and float(off[np.ix_(*box)].mean()) < 0.5:
            where += f" ({int(off.sum())} of {off.size} entries)"
    how = relation(part, box)
    return where + (f"; {how}" if how else "")


def _share(part: Wrong) -> str:
    """How many of the entries are wrong, if it is not nearly all of them."""
    off, zero = part.off, ~part.off & (part.true == 0)
    if off.sum() < MOST * (off.size - zero.sum()):
        return f"{int(off.sum())} of {off.size} entries"
    return f"everywhere{' but where 0 is right' * bool(zero.any())}"


def _entry(part: Wrong, box: Sequence[Array]) -> str:
    index = [int(chosen[0]) for chosen in box]
    if part.axes[0].names:
        return f"[{', '.join(map(str, index[1:]))}] of gate {part.axes[0].names[index[0]]}"
    return str(index)


def indices(axis: Axis, chosen: Array, size: int, certified: Certificate, name: str) -> str:
    """The chosen indices of an axis in words."""
    noun, first, last = axis.noun, int(chosen[0]), int(chosen[-1])
    if axis.names:
        names = [axis.names[n] for n in chosen]
        H = getattr(certified.net, "hidden", 0) if isinstance(certified, Certified) else 0
        rows = f" (rows {first * H} to {(first + 1) * H - 1})" if H and len(names) == 1 else ""
        return f"gate{'s' * (len(names) > 1)} {', '.join(names)}{rows}"
    feature = _feature(noun, chosen, certified)
    if feature:
        return feature
    steps = np.diff(chosen)
    if len(chosen) == 1:
        end = " (the first)" if first == 0 else " (the last)" if last == size - 1 else ""
        return f"{noun} {first}{end}"
    if (steps == 1).all():
        if noun == "step" and first == 0:
            return f"from step {last} down"
        if noun == "step" and last == size - 1:
            return f"from step {first} on"
        end = f" (the last {len(chosen)})" if last == size - 1 else ""
        return f"{plural(noun)} {first} to {last}{end}"
    if noun == "step" and name == "dx" and len(chosen) > (last + 1) / 2:
        return f"from step {last} down"
    listed = ", ".join(map(str, chosen[:8])) + ", ..." * (len(chosen) > 8)
    if len(chosen) > 2 and (steps == steps[0]).all():
        return f"{plural(noun)} {listed}: every {_ordinal(int(steps[0]))}"
    rest = np.setdiff1d(np.arange(size), chosen)
    if len(rest) < len(chosen) / 2 and len(rest) <= 4:
        return f"all {plural(noun)} but {', '.join(map(str, rest))}"
    return f"{plural(noun)} {listed}"


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def _lengths(certified: Certificate) -> Array | None:
    """The steps of every sequence, if they are not all the same."""
    mask = certified.batch.mask if isinstance(certified, Certified) else None
    if mask is None:
        return None
    lengths = last_steps(mask)
    return lengths if len(set(lengths.tolist())) > 1 else None


def _feature(noun: str, chosen: Array, certified: Certificate) -> str:
    """What the chosen examples have in common and no others have: their length, their class."""
    if noun != "example" or not isinstance(certified, Certified):
        return ""
    lengths, y = _lengths(certified), certified.batch.y
    here = f" (example{'s' * (len(chosen) > 1)} {', '.join(map(str, chosen))})"
    if lengths is not None:
        full = lengths == certified.batch.x.shape[0]
        many = "s" * (len(chosen) > 1)
        if np.array_equal(np.flatnonzero(full), chosen):
            return f"the sequence{many} of full length{here}"
        if np.array_equal(np.flatnonzero(~full), chosen):
            return f"the sequence{many} with padding{here}"
    if y.ndim == 1 and y.dtype.kind in "iu" and len(chosen) > 1:
        for c in np.unique(y):
            if np.array_equal(np.flatnonzero(y == c), chosen):
                return f"the examples of class {c}{here}"
    return ""


def _pair(
    part: Wrong, off: Array, blank: Array, certified: Certificate
) -> tuple[tuple[int, ...], str]:
    """Two axes, and the pattern of their indices together, where not all of the box is off."""
    for a, b in combinations(range(off.ndim), 2):
        others = tuple(n for n in range(off.ndim) if n not in (a, b))
        seen, known = np.asarray(off.any(axis=others)), ~blank.all(axis=others)
        rows, columns = seen.any(axis=1), seen.any(axis=0)
        inside = seen[rows][:, columns]
        if inside.size < 4 or inside.mean() > 0.9 or seen[known].all():
            continue
        m, n = seen.shape
        i, j = np.ogrid[:m, :n]
        features: list[tuple[str, Array]] = []
        if m == n:
            features += [
                ("the diagonal", i == j),
                ("the triangle below the diagonal", i > j),
                ("the triangle above the diagonal", i < j),
                ("the lower triangle", i >= j),
                ("the upper triangle", i <= j),
                ("the entries off the diagonal", i != j),
            ]
        nouns = part.axes[a].noun, part.axes[b].noun
        if nouns == ("step", "example") and isinstance(certified, Certified):
            features += _of_the_steps(m, certified)
        for text, feature in features:
            feature = np.broadcast_to(feature, seen.shape)
            if seen.any() and not (seen & ~feature).any() and seen[feature & known].mean() > 0.7:
                return (a, b), text
    return (), ""


def _of_the_steps(steps: int, certified: Certified) -> Iterator[tuple[str, Array]]:
    """Parts of a (step, example) array: padding, ends of sequences, a class's predictions."""
    batch = certified.batch
    T, y = len(batch.x), batch.y
    t = np.arange(steps)[:, None] - (steps - T)  # a state h[t + 1] belongs to step t
    lengths = _lengths(certified)
    if lengths is not None:
        yield "the steps after a sequence's end", t >= lengths
        yield "the steps within the sequences", t < lengths
        yield "the last step of every sequence", t == lengths - 1
        yield "the steps before the last of every sequence", t < lengths - 1
        assert batch.mask is not None
        mask = batch.mask[np.clip(t[:, 0], 0, T - 1)]
        yield "the masked steps", ~mask
        yield "the steps that the mask keeps", mask
    if y.ndim == 2 and y.dtype.kind in "iu" and steps == T:
        for c in np.unique(y):
            yield f"the predictions of class {c}", y == c
