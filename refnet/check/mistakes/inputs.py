"""Mistakes in what goes in: time, batch, masks, start, biases, memory order, gain, read-out.

Each is another reading of an array, with its gradient read back (``base.reading``), or another
formula at a place of the naive net.

Checked by: tests/check/test_mistake_names.py.
"""

from typing import Any

from refnet.batch import Batch, Params
from refnet.check.entries import either
from refnet.check.mistakes.base import Mistakes, mistake, of_the_memory, reading
from refnet.check.mistakes.scoring import class_alone
from refnet.nets.layer import GAINED
from refnet.nets.recurrent import RecurrentNet

__all__ = ["of_inputs", "of_parameters", "of_readout", "of_the_axes"]


def of_the_axes(batch: Batch) -> Mistakes:
    """Mistakes in the axes of x: time is reversed, or read as the batch."""
    T, B, D = batch.x.shape
    if T > 1:
        yield reading("time is reversed", "x", back="w[::-1]", x="v[::-1]")
    if T > 1 and B > 1:
        yield reading(
            "x is read with batch and time swapped",
            "x",
            back=f"w.swapaxes(0, 1).reshape({T}, {B}, {D})",
            x=f"v.reshape({B}, {T}, {D}).swapaxes(0, 1)",
        )


def of_inputs(net: RecurrentNet, params: Params, batch: Batch) -> Mistakes:
    """Mistakes in reading x, the mask and the initial state."""
    T, B, D = batch.x.shape
    yield from of_the_axes(batch)
    if T > 1:
        yield from _dropped_steps(net)
    if T > 1 and B > 1:
        if T == B:
            yield reading(
                "x has batch and time swapped", "x", back="w.swapaxes(0, 1)", x="v.swapaxes(0, 1)"
            )
        yield from _dropped_examples(net, batch)
    if batch.mask is not None:
        yield from _of_the_mask(net.readout)
    if "h0" in params:
        yield reading("h0 is ignored", "h0", back="0 * w", h0="0 * v")
        if net.cell == "lstm":
            yield reading("h0 and c0 are swapped", "h0", back="w[::-1]", h0="v[::-1]")


def _of_the_mask(readout: str) -> Mistakes:
    before = {"last": "the read-out takes the state before the last"}
    early = before.get(readout, "sequences end too soon")
    for label, formula in (
        ("the mask is ignored", "None"),
        ("the mask is shifted by one step (later)", "shifted(v, True)"),
        (
            either(["the mask is shifted by one step (earlier)", early]),
            "np.concatenate([v[1:], np.zeros_like(v[:1])])",
        ),
        ("the mask is inverted: True is read as padding", "np.logical_not(v)"),
        ("the mask is read with batch and time swapped", "v.T.reshape(v.shape)"),
    ):
        yield mistake(label, mask=f"None if v is None else {formula}")
    stay = "blended(v, 'h c' if s.c else 'h', 'm {0}o + (1-m) {0}-')"
    yield mistake("masked steps leave the state as it is", cell=stay)
    yield mistake(
        "the states after a sequence's end are zero",
        cell="blended(v, 'h c' if s.c else 'h', 'm {0}o')",
        m="np.arange(len(v))[:, None] < last_steps(v)",
    )


def _dropped_steps(net: RecurrentNet) -> Mistakes:
    """Without one step: the states are those of T - 1 steps."""
    for label, rest, zeros in (("first", "1:", (1, 0)), ("last", ":-1", (0, 1))):
        places: dict[str, Any] = {"y": f"v[{rest}]"} if net.readout == "every" else {}
        yield reading(
            f"the {label} step of the sequence is dropped",
            "x",
            back=f"np.pad(w, ({zeros}, (0, 0), (0, 0)))",
            x=f"v[{rest}]",
            mask=f"None if v is None else v[{rest}]",
            weights=f"v if v is None or v.ndim < 2 else v[{rest}]",
            **places,
        )


def _dropped_examples(net: RecurrentNet, batch: Batch) -> Mistakes:
    B = batch.x.shape[1]
    for label, b in (("first", 0), ("last", B - 1)):
        rest = f"dropped(v, np.arange(len(v[0])) % {B} == {b})"
        c = class_alone(batch, b) if net.loss == "cross_entropy" else None
        who = either([f"the {label} example of the batch", *[f"class {c},"] * (c is not None)])
        yield mistake(f"{who} is left out", each=rest)
        yield mistake(
            f"{who} is left out, and not counted", each=rest, divisor=f"v * {B - 1} / {B}"
        )


def of_parameters(net: RecurrentNet, params: Params) -> Mistakes:
    """Mistakes in reading the parameters."""
    H, G, D, C = net.hidden, len(net.gates), net.inputs, net.outputs
    yield reading("the bias bh is left out (one of two biases only)", "bh", "0 * w")
    yield reading("the bias bh is added twice (as each of two biases)", "bh", "2 * w")
    yield reading("the bias by is left out", "by", "0 * w")
    if H > 1:
        turn = f"blocks(w, {G}, np.transpose)"
        yield reading("Whh is transposed in the forward and backward pass", "Whh", turn)
        yield reading("Whh is transposed, and its gradient transposed back", "Whh", turn, turn)
    for name, rows, columns in (("Whh", G * H, H), ("Wxh", G * H, D), ("Why", C, H)):
        if min(rows, columns) > 1 and not (name == "Whh" and G == 1):
            yield of_the_memory(name, rows, columns)
    for name in params:
        if name.endswith(".A"):
            yield from _of_the_skew(name)
    if net.gain != 1:
        every, rest = " ".join(GAINED), " ".join(name for name in GAINED if name != "Whh")
        shrink, grow, divide = f"w * {1 / net.gain}", f"w * {net.gain}", f"w / {net.gain}"
        yield reading("the gain is ignored", every, shrink, shrink)
        yield reading("the gain is applied twice", every, grow, grow)
        yield reading("the gain multiplies Whh alone", rest, divide, divide)
        yield reading("the gain is left out of the gradients", every, back=shrink)


def _of_the_skew(name: str) -> Mistakes:
    """Another multiple of the skew-symmetric matrix that an orthogonal one is made of."""
    for factor, label in (
        (-1, "the other sign: of Cayley's map (I - Y)^-1 (I + Y)"),
        (0.5, "half of it"),
        (-0.5, "half of it and the other sign, as PyTorch's orthogonal parametrisation"),
        (2, "twice it"),
        (-2, "twice it and the other sign"),
    ):
        part = f"'{name}': v['{name}'] * {factor}"
        yield mistake(
            f"the matrix is made of Y, the skew-symmetric part, with {label}",
            made_of=f"{{**v, {part}}}",
            report=f"{{**v, 'd{name}': v['d{name}'] * {factor}}}",
        )


def of_readout(net: RecurrentNet, batch: Batch) -> Mistakes:
    """Mistakes in which states are read out, and in the gradients that enter them."""
    if net.readout == "last" and batch.mask is not None and batch.x.shape[1] > 1:
        for how, text in ("longest first", "np.sort(v)[::-1]"), ("shortest first", "np.sort(v)"):
            yield mistake(f"the lengths are sorted, {how}, and the sequences are not", steps=text)
        late = "np.concatenate([0 * v[1:], v.sum(axis=0)[None]])"
        yield mistake(
            "the read-out's gradient enters at the last step, after the padding", direct=late
        )
        order = "np.argsort(-s.lengths, kind='stable')"  # from the longest to the shortest
        for how, text in (
            ("sorted by length", order),
            ("sorted by length twice", f"{order}[{order}]"),
            ("taken back from a sorting by length", f"np.argsort({order})"),
        ):
            sort = f"entering(v, s, s.drows[{text}])"
            yield mistake(
                f"the read-out's gradients are {how}, though the states are not", direct=sort
            )
    if net.cell == "lstm":
        yield mistake(
            "the read-out takes the cell c, not h",
            lines="v + [Edit(('line', s.program.index['read'], 0), (READS_C,))]",
            pulls="v + [s.program.follow(s.program.index['read'], READS_C)]",
        )
