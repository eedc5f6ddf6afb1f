"""A right quantity reported in another way: transposed, negated, scaled, clipped, left out.

Each edit is a name and the array that it makes of the right one; fitted edits take a constant
from the judged array itself, and are believed only if nothing else explains it.
Checked by: tests/check/test_mistake_names.py.
"""

from collections.abc import Iterator

import numpy as np

from refnet.batch import Array, Params
from refnet.cells import CELLS
from refnet.check import function_edits
from refnet.check.mistakes.formulas import put, taken
from refnet.check.mistakes.gates import orders
from refnet.check.programs.arrays import OF_THE_GATES, formed
from refnet.check.programs.notation import formula
from refnet.exact.enclose import Certified
from refnet.exact.functions import CertifiedFunction
from refnet.exact.running import parts
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import plain

__all__ = ["edits", "fitted_edits", "shared_edits", "shared_fitted_edits"]

Edits = Iterator[tuple[str, Array]]
Certificate = Certified | CertifiedFunction
STACKED = ("dWhh", "dWxh", "dWxh.W", "dbh")


def edits(name: str, right: Array, certified: Certificate) -> Edits:
    """Edits of one gradient, of the loss or of a function's value, without a free constant."""
    if not name.startswith("d") and name not in ("loss", "value"):
        return
    sizes = {text: size for text, size in _sizes(certified).items() if size != 1}
    if isinstance(certified, Certified) and name.startswith("d"):
        yield from _of_the_states(name, right, certified)
    yield from function_edits.of_one(name, right, certified, sizes)
    if isinstance(certified, CertifiedFunction):
        yield from function_edits.of_a_function(name, right, certified)
    elif name.startswith("d"):
        yield from _of_the_gates(name, right, certified)
        for label, value in _of_the_manifold(name, right, certified):
            yield f"{name} {label}", value


def _of_the_states(name: str, right: Array, certified: Certified) -> Edits:
    net = certified.net
    if plain(name) == "dh0" and isinstance(net, RecurrentNet) and CELLS[net.cell].STATES == 2:
        h, c = right
        yield f"{name} has those of h and c swapped", right[::-1]
        yield f"{name} has zero for h", np.stack([np.zeros_like(h), c])
        yield f"{name} has zero for c", np.stack([h, np.zeros_like(c)])


def _of_the_gates(name: str, right: Array, certified: Certified) -> Edits:
    net = certified.net
    if not isinstance(net, RecurrentNet) or len(net.gates) < 2 or plain(name) not in STACKED:
        return
    if name.startswith("dWhh") and not net.projection:
        parts_of = [
            [*function_edits.of_the_matrix(block)] for block in np.split(right, len(net.gates))
        ]
        for edited in zip(*parts_of):
            value = np.concatenate([value for _, value in edited])
            yield f"each gate's block of {name} {edited[0][0]}", value
    for order, names in orders(net.gates):
        yield f"{name} has its gates stacked in the order {names}", taken(right, order)
    for how, value in _layouts(right, net.gates):
        yield f"{name} is read {how}", value
    for n, gate in enumerate(net.gates):
        rows = slice(n * net.hidden, (n + 1) * net.hidden)
        yield f"{name} is zero for the gate {gate}", put(right, rows, 0)


def _layouts(stacked: Array, gates: tuple[str, ...]) -> Edits:
    """The rows of all gates in another order."""
    blocks = stacked.reshape(len(gates), -1, *stacked.shape[1:])
    for how in OF_THE_GATES:
        yield how, formed(blocks, how).reshape(stacked.shape)


def _of_the_manifold(name: str, right: Array, certified: Certified) -> Edits:
    """Tangents in place of the Euclidean gradient, of the parts of a transition or of square
    blocks."""
    M = certified.params.get(name[1:])
    if M is None or right.ndim != 2 or np.iscomplexobj(M) or M.shape != right.shape:
        return
    blocks = 1 if "." in name else len(right) // right.shape[1]
    if "." not in name and (not blocks or blocks * right.shape[1] != len(right)):
        return
    pairs = list(zip(np.split(np.asarray(M, float), blocks), np.split(right, blocks)))
    for how, tangent in TANGENTS.items():
        if M.shape[0] == blocks * M.shape[1] or "sym(M'G)" in how:
            yield how, np.concatenate([formula(tangent, "M, G")(M, G) for M, G in pairs])


TANGENTS = {
    "is projected onto the tangent space: G - M sym(M'G)": "G - M @ (M.T @ G + G.T @ M) / 2",
    "is the tangent of the canonical metric: G - M G'M": "G - M @ G.T @ M",
    "is half the tangent of the canonical metric: (G - M G'M) / 2": "(G - M @ G.T @ M) / 2",
    "is skew-symmetric: G M' - M G'": "G @ M.T - M @ G.T",
    "is skew-symmetric: (G M' - M G') / 2": "(G @ M.T - M @ G.T) / 2",
    "is skew-symmetric: M'G - G'M": "M.T @ G - G.T @ M",
    "is skew-symmetric: (M'G - G'M) / 2": "(M.T @ G - G.T @ M) / 2",
    "is (G M' - M G') M": "(G @ M.T - M @ G.T) @ M",
    "is (G M' - M G') M / 2": "(G @ M.T - M @ G.T) @ M / 2",
    "is M (M'G - G'M)": "M @ (M.T @ G - G.T @ M)",
    "has no part along M: G - M <M, G> / <M, M>": "G - M (M * G).sum() / (M * M).sum()",
}


def fitted_edits(name: str, right: Array, theirs: Array, certified: Certificate) -> Edits:
    """Edits whose one constant is taken from ``theirs``; of arrays with two entries or more."""
    if theirs.shape != right.shape or right.size < 2 and name != "loss":
        return
    factor = _factor(right, theirs)
    if factor is not None:
        what = name if name.startswith("d") else f"the {name}"
        yield f"{what} is {_times(factor, certified)} the right one", factor * right
    if not name.startswith("d"):
        return
    bound = abs(theirs).max()
    if (abs(right) > bound).any():
        yield f"{name} is clipped at {bound:.6g}", np.clip(right, -bound, bound)
    decay = _decay({name: right}, {name: theirs}, certified.params)
    if decay is not None:
        label = f"{name} has {decay:.4g} times the parameter added (weight decay)"
        yield label, _decayed(name, right, decay, certified)
    index = np.unravel_index(abs(theirs - right).argmax(), right.shape)
    label = f"only the entry {list(map(int, index))} of {name} is wrong"
    yield label, put(right, index, theirs[index])


def shared_edits(right: Params, certified: Certificate) -> Iterator[tuple[str, Params]]:
    """Edits of several gradients in the same way, without a free constant."""
    gradients = {name: value for name, value in right.items() if name.startswith("d")}
    matrices = {name: v for name, v in gradients.items() if v.ndim == 2 and "W" in name}
    yield "every gradient has the wrong sign", {name: -v for name, v in gradients.items()}
    yield "every gradient is missing (zero)", {name: 0 * v for name, v in gradients.items()}
    turned = {name: v.T for name, v in matrices.items()}
    yield "every weight matrix's gradient is transposed", turned
    if isinstance(certified, CertifiedFunction):
        yield from function_edits.of_several(right)
        return
    net = certified.net
    if isinstance(net, RecurrentNet) and len(net.gates) > 1:
        for order, names in orders(net.gates):
            label = f"the gradients' gates are stacked in the order {names}"
            yield label, {n: taken(v, order) for n, v in gradients.items() if plain(n) in STACKED}
        stacked = {n: v for n, v in gradients.items() if plain(n) in STACKED}
        for layouts in zip(*(_layouts(v, net.gates) for v in stacked.values())):
            label = f"the gradients of the stacked gates are read {layouts[0][0]}"
            yield label, {n: value for n, (_, value) in zip(stacked, layouts)}


def shared_fitted_edits(
    given: Params, right: Params, certified: Certificate, names: list[str], what: str
) -> Iterator[tuple[str, Params]]:
    """Edits of the gradients of these ``names``, two at least, by one constant; ``what``: what they
    are called."""
    if len(names) < 2:
        return
    mine, theirs = (np.concatenate([a[name].ravel() for name in names]) for a in (right, given))
    factor = _factor(mine, theirs)
    if factor is not None:
        norm = float(np.linalg.norm(theirs))
        usual = [n for n in (0.1, 0.25, 0.5, 1, 2, 5, 10, 100) if abs(norm / n - 1) < 1e-4]
        times = _times(factor, certified)
        label = f"{what} is {times} the right one"
        if 0 < factor < 1 and usual:
            label = f"the gradients are clipped to the norm {usual[0]:g}"
        yield label, {name: factor * right[name] for name in names}
        first = "value" if isinstance(certified, CertifiedFunction) else "loss"
        label = f"the {first} and {what} are {times} the right ones"
        yield label, {name: factor * right[name] for name in (first, *names)}
    bound = abs(theirs).max()
    if (abs(mine) > bound).any():
        clipped = {name: np.clip(right[name], -bound, bound) for name in names}
        yield f"{what} is clipped at {bound:.6g}", clipped
    weights = [name for name in names if name[1:] in certified.params]
    decay = _decay({name: right[name] for name in weights}, given, certified.params)
    if decay is not None:
        label = f"{what} has {decay:.4g} times the parameter added (weight decay)"
        yield label, {name: _decayed(name, right[name], decay, certified) for name in weights}


def _decayed(name: str, right: Array, decay: float, certified: Certificate) -> Array:
    return right + decay * parts(certified.params[name[1:]]).astype(float)


def _factor(right: Array, theirs: Array) -> float | None:
    size = float((right * right).sum())
    if not 0 < size < np.inf:
        return None
    return float((right * theirs).sum()) / size


def _sizes(certified: Certificate) -> dict[str, float]:
    """What a factor may come from."""
    if isinstance(certified, CertifiedFunction):
        return dict(function_edits.sizes(certified))
    net, x = certified.net, certified.batch.x
    C = net.outputs if isinstance(net, RecurrentNet) else net.widths[-1]
    sizes: dict[str, float] = {"B": x.shape[-2], "C": C}
    if x.ndim == 3:
        sizes |= {"T": len(x), "T B": len(x) * x.shape[1], "gain": getattr(net, "gain", 1)}
    return sizes


def _times(factor: float, certified: Certificate) -> str:
    """The factor as a number, and as the sizes that it may come from."""
    sizes = _sizes(certified)
    texts = [
        text
        for name, size in sizes.items()
        if size != 1
        for value, text in (
            (size, name),
            (1 / size, f"1 / ({name})" if " " in name else f"1 / {name}"),
        )
        if abs(abs(factor) / value - 1) < 1e-4
    ]
    if abs(abs(factor) - 1) < 1e-5:
        more = abs(factor) - 1
        return f"{'-' * (factor < 0)}(1 {'+' if more > 0 else '-'} {abs(more):.2g}) times"
    sign = "-" * (factor < 0)
    return f"{' = '.join([*(sign + text for text in texts), f'{factor:.6g}'])} times"


def _decay(right: Params, theirs: Params, params: Params) -> float | None:
    """The constant of ``theirs = right + constant * parameter``."""
    if not right or not all(name[1:] in params for name in right):
        return None
    p = np.concatenate([parts(params[name[1:]]).astype(float).ravel() for name in right])
    gap = np.concatenate([(theirs[name] - right[name]).ravel() for name in right])
    size = float((p * p).sum())
    return float((p * gap).sum()) / size if 0 < size < np.inf and len(p) > 1 else None
