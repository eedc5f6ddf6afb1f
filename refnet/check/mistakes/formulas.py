"""What the texts of mistakes are written in: they see these names, and NumPy as np.

Arrays that are cut or put together, edits of a recurrent net's program (``refnet.check.programs``),
moves on the edges of a stack, and losses. ``base`` evaluates the texts.

Checked by: tests/check/test_mistake_names.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from refnet.batch import Array, Params, last_steps
from refnet.check.naive import Pass
from refnet.check.programs import arrays
from refnet.check.programs.cells import CELLS, GATE, Factor, Line, copied, factor
from refnet.check.programs.edit import Edit
from refnet.check.programs.layers import Change, Layers
from refnet.check.programs.moves import SAME, Move, gathered
from refnet.exact.running import Runs, run_on
from refnet.maths.activations import ACTIVATIONS

__all__ = [
    "ACTIVATIONS", "CELLS", "GATE", "SAME", "TYPES", "coarse", "gathered", "last_steps", "taken"
]  # fmt: skip

CUT = Move("", lambda v: v, lambda d: 0 * d)
"""The gradient is not carried on."""
READS_C = copied("read", Factor("c"))
"""The read-out takes the cell."""
Scores = tuple[Array, Array]
"""The losses of the predictions, and their gradients in the outputs."""


def put(values: Array, where: Any, new: Any) -> Array:
    """A copy of ``values`` that holds ``new`` at the places ``where``."""
    values = values.copy()
    values[where] = new
    return values


def blocks(stacked: Array, gates: int, change: Any) -> Array:
    """The stacked rows with ``change`` made on the block of each gate."""
    return np.concatenate([change(part) for part in np.split(stacked, gates)])


def taken(stacked: Array, order: tuple[int, ...]) -> Array:
    """The blocks of the gates in another order: block n is the old block order[n]."""
    parts = np.split(stacked, len(order))
    return np.concatenate([parts[n] for n in order])


def each(arrays: Params, change: Any) -> Params:
    """The arrays with ``change`` made on each."""
    return {name: change(value) for name, value in arrays.items()}


def right_of_zero(a: Array, h: Array) -> tuple[Array, Array]:
    """a and h, with 1 for both where a is 0: the slope there is then that from the right."""
    return np.where(a == 0, 1, a), np.where(a == 0, 1, h)


def shifted(array: Array, later: bool) -> Array:
    """Every entry one step later or earlier; the end that is left over keeps its value."""
    return np.concatenate([array[:1], array[:-1]] if later else [array[1:], array[-1:]])


def relined(cell: str, **lines: str) -> str:
    """A cell's text with other lines for the named variables."""
    return ";".join(lines.get(line.split("=")[0].strip(), line) for line in cell.split(";"))


def blended(cell: str, names: str, text: str) -> str:
    """A cell's text in which the new state {0} of each name is what ``text`` makes of the usual new
    one, {0}o, and of the old one, {0}-."""
    new = {}
    for line in cell.split(";"):
        name = line.split("=")[0].strip()
        if name in names.split():
            new[name] = line.replace(f"{name} =", f"{name}o =", 1) + f"; {name} = {text}".format(
                name
            )
    return relined(cell, **new)


def carried(line: Line, pull: Line) -> bool:
    """Whether a pull goes to the step before."""
    return pull.target.step < 0 and pull.target.name in ("d h", "d c")


def summed(line: Line, pull: Line) -> bool:
    """Whether a pull is summed over the steps, as weight gradients are."""
    return not pull.target.name.startswith("d ")


def scaled(s: Pass, name: str, weight: Callable[[Array], Any]) -> list[Edit]:
    """Edits with which a variable is multiplied by ``weight``, a function of the steps t (T, 1,
    1)."""
    n = s.program.index[name]
    return [Edit(("line", n, 0), (s.program.lines[n],), _weight(s, weight) - 1, True)]


def counted(
    s: Pass, chosen: Callable[[Line, Line], Any], weight: Callable[[Array], Any]
) -> list[Edit]:
    """Edits with which the chosen pulls are multiplied by ``weight``, a function of the steps t (T,
    1, 1)."""
    return [
        Edit(place, (pull,), _weight(s, weight) - 1, True)
        for place, pull in s.program.added.items()
        if chosen(s.program.lines[place[1]], pull)
    ]


def _weight(s: Pass, weight: Callable[[Array], Any]) -> Array:
    return np.atleast_3d(np.asarray(weight(np.arange(len(s.x))[:, None, None]), float))


def taking(s: Pass, target: str, old: str, new: str = "") -> list[Edit]:
    """Edits with which the pulls to ``target`` have the factor ``new`` for ``old``, or none."""
    edits = []
    for place, pull in s.program.added.items():
        (term,) = pull.terms
        if pull.target.name == target and factor(old) in term.factors:
            at = term.factors.index(factor(old))
            others = [factor(new)] * bool(new)
            new = term.of(*term.factors[:at], *others, *term.factors[at + 1 :])
            edits.append(Edit(place, (pull.of(new),)))
    return edits


def through(s: Pass, name: str, function: str) -> Edit:
    """The edit with which a variable passes through one more function."""
    n = s.program.index[name]
    line = s.program.lines[n]
    both = f"{line.function} then {function}" if line.function else function
    return Edit(("line", n, 0), (line._replace(function=both),))


def gradient_through(s: Pass, name: str, function: str) -> Edit:
    """The edit with which the whole gradient of a variable passes through a function."""
    n = s.program.index[name]
    return Edit(("pull", n, 0), (s.program.pulls[n][0]._replace(function=function),))


def sums_in(s: Pass, function: str) -> list[Edit]:
    """Edits with which each step's share of the weight gradients passes through a function."""
    return [
        edit._replace(lines=(edit.lines[0]._replace(function=function),), weight=None, more=False)
        for edit in counted(s, summed, lambda t: 0 * t)
    ]


def edged(change: Change, moves: dict[str, Move], ways: str) -> Change:
    """A change with more moves on edges, in the passes that ``ways`` lists: there, back, sums."""
    for way in ways.split():
        new: Any = {way: {**getattr(change, way), **moves}}
        change = change._replace(**new)
    return change


def on(
    s: Pass,
    edge: str,
    move: Callable[[str], Move],
    chosen: Callable[[str], Any] = lambda cell: cell.endswith("_reverse"),
) -> dict[str, Move]:
    """The same move on one edge of each chosen cell, by default of the second direction."""
    names = {f"{edge}{cell}": cell for cell in s.layers.cells}
    known = s.layers.edges.keys() & names.keys()
    return {name: move(names[name]) for name in known if chosen(names[name])}


def exchanged(layers: Layers) -> dict[str, Move]:
    """Moves that exchange the halves of every layer's output and of what is read out."""

    def halves(v: Array) -> Array:
        return np.roll(v, v.shape[-1] // 2, -1)

    swap = Move("", halves, halves)
    pads = {n: swap.after(move) for n, move in layers.edges.items() if n.startswith("pad")}
    return pads | ({"rows": swap} if layers.last else {})


def dropped(scores: Scores, where: Array) -> Scores:
    """The scores without the predictions of this mask."""
    losses, dv = scores
    return put(losses, where, 0), put(dv, where, 0)


def logits(s: Pass) -> Array:
    """The outputs (N, C)."""
    return s.outputs.reshape(-1, s.outputs.shape[-1])


def targets(s: Pass) -> Array:
    """The labels as rows of 0 and 1, or the targets, (N, C)."""
    v = logits(s)
    return np.eye(v.shape[1], dtype=v.dtype)[s.y.ravel()] if s.y.dtype.kind in "iu" else (
        s.y.reshape(v.shape)
    )  # fmt: skip


def scored(s: Pass, loss: Callable[[Array, Array], Array]) -> Scores:
    """The scores of another loss, a formula of the outputs and ``targets``; its gradient is
    derived."""
    v, y, weights = logits(s), targets(s), s.raw[2]
    results = run_on(Runs(lambda v: loss(v, y)), {"v": v}, weights, lambda array, _: array.copy())
    return np.asarray(results["value"] * weights, v.dtype), np.asarray(results["dv"], v.dtype)


def sloped(s: Pass, slope: Callable[[Array, Array], Array]) -> Array:
    """Another gradient in the outputs: a formula of them and of ``targets``."""
    v = logits(s)
    return np.asarray(slope(v, targets(s)) * s.raw[2][:, None], v.dtype)


def softmax(v: Array) -> Array:
    """The softmax of each row."""
    e = np.exp(v - v.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def likely(v: Array, y: Array) -> Array:
    """The probability that the softmax gives to each label."""
    return (softmax(v) * y).sum(axis=1)  # type: ignore[no-any-return]


def huber(error: Array, k: float) -> Array:
    """Huber's loss: the squared error up to k, beyond it a line."""
    return np.where(abs(error) > k, 2 * k * abs(error) - k * k, error * error)


def entering(direct: Array, s: Pass, drows: Array) -> Array:
    """The gradients ``drows`` of what is read out, put where they enter the states."""
    direct = np.zeros_like(direct)
    if getattr(s.net, "readout", "") == "every":
        direct[1:] = drows.reshape(direct[1:].shape)
    else:
        direct[s.lengths, np.arange(len(drows))] = drows
    return direct


def penalised(results: Params, s: Pass, k: float, only: str) -> Params:
    """Results with an L2 penalty: k times the sum of squares of the parameters whose names begin
    with ``only``."""
    parts = {name: w for name, w in s.params.items() if name.startswith(only) and name != "h0"}
    squares = sum(float((w * w).sum()) for w in parts.values())
    grown = {f"d{name}": results[f"d{name}"] + 2 * k * w for name, w in parts.items()}
    return {**results, **grown, "loss": results["loss"] + k * squares}


def share_of_others(s: Pass, c: int) -> float:
    """The share of the counted predictions that are not of class c; 1 if there are none."""
    weights = s.raw[2]
    return float(weights[s.y.reshape(-1) != c].sum() / weights.sum()) or 1


def loss_without(results: Params, s: Pass, c: int) -> Params:
    """Results whose loss is NaN if all counted predictions are of class c."""
    rest = s.raw[2][s.y.reshape(-1) != c]
    return results if rest.any() else {**results, "loss": results["loss"] * np.nan}


TYPES = ("float32", "float16 or TF32", "bfloat16", "TF32")
"""Types. TF32 has the digits of float16 with the range of float32: where the numbers are in both
ranges, the two are the same."""


def coarse(value: Any, name: str) -> Any:
    """An array of floats, or a dict of them, rounded to one of TYPES but kept in its own type;
    labels stay as they are."""
    if isinstance(value, dict):
        return each(value, lambda part: coarse(part, name))
    if value.dtype.kind != "f":
        return value
    return arrays.coarse(value, name.split()[0]).astype(value.dtype)
