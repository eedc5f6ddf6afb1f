"""A tape goes back through the net that made it, with the parameters that it was made of, as they
were; and no kernel is given an array of another size."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from refnet import Batch, FeedforwardNet, RecurrentNet, loss_and_gradients
from refnet.cells import CELLS
from refnet.compiled import elementwise, losses, orthogonality, products, walk
from refnet.compiled._jit import JIT
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.noise import Noise
from refnet.nets.stacked import StackedNet
from support.arguments import refused

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
BASES = {
    **{cell: RecurrentNet(2, 4, 4, cell, backend="reference") for cell in CELLS},
    "stacked": StackedNet(2, 4, 4, "lstm", layers=2, backend="reference"),
    "feedforward": FeedforwardNet((2, 4, 4), backend="reference"),
}
BACKENDS = ("reference", "compiled")
CHANGES = {
    "activation": ACTIVATIONS,
    "backend": BACKENDS,
    "bidirectional": (True,),
    "cell": CELLS,
    "checkpoint": ("sqrt", "forward"),
    "clip_forward": (0.5,),
    "clip_step": (0.001,),
    "embedding": (3,),
    "gain": (2,),
    "gate": ("tanh", "softsign"),
    "hidden": (2, 6, 40),
    "inputs": (1, 3),
    "layers": (1, 3),
    "learn_h0": (True,),
    "loss": ("squared_error",),
    "outputs": (2, 8),
    "projection": (2,),
    "readout": ("every", "none"),
    "reduction": ("sum",),
    "noise": (Noise(),),
    "smoothing": (0.1,),
    "zoneout": (0.1,),
    "transition": ("orthogonal", "svd"),
    "widths": ((2, 4), (2, 60, 4), (2, 4, 2), (2, *[4] * 40, 4), (3, 4, 4)),
}
"""Other values for every field of every net."""


def changed(net):
    """The field and the net, of all that differ from ``net`` in one field and can be made."""
    for name in (field.name for field in fields(net)):
        for value in CHANGES[name]:
            try:
                other = replace(net, **{name: value})
            except ValueError:
                continue
            if other != net:
                yield name, other


def drawn(net, dtype=np.float32):
    """Parameters and x, of 2 sequences of 5 steps."""
    rng = np.random.default_rng(0)
    lead = (2, net.widths[0]) if isinstance(net, FeedforwardNet) else (5, 2, net.inputs)
    return net.init(rng, dtype), rng.normal(size=lead).astype(dtype)


def back(net, params, x):
    """The gradients of a net's own tape, and the outputs."""
    outputs, tape = net.forward(params, x)
    return net.backward(params, tape, np.ones_like(outputs)), outputs


def refused_or_right(first, second):
    """Raise AssertionError unless ``second`` refuses the tape of ``first`` in one line or computes
    what it computes from a tape of its own."""
    params, x = drawn(first)
    tape = first.forward(params, x)[1]
    if getattr(second, "checkpoint", "") == "forward":
        shapes = [first.forward(params, x)[0].shape]
    else:
        shapes = {net.forward(*drawn(net))[0].shape for net in (first, second)}
    for p in (params, drawn(second)[0]):
        for shape in shapes:
            try:
                computed = second.backward(p, tape, np.ones(shape, np.float32))
            except ValueError as error:
                assert str(error).startswith(f"{type(second).__name__}.backward: ")
                assert "\n" not in str(error)
            else:
                want, outputs = back(second, p, x)
                assert outputs.shape == shape and computed.keys() == want.keys()
                assert all(np.array_equal(computed[name], want[name]) for name in want)


def test_every_field_is_changed():
    """A new field needs other values in CHANGES, one of which at least one of these nets takes."""
    for kind in (RecurrentNet, StackedNet, FeedforwardNet):
        assert {
            name for net in BASES.values() if type(net) is kind for name, _ in changed(net)
        } == {field.name for field in fields(kind)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("base", BASES)
def test_nets_that_differ_in_one_field(base, backend):
    net = replace(BASES[base], backend=backend)
    for _, other in changed(net):
        refused_or_right(net, other)
        refused_or_right(other, net)


def unchecked(*arguments):
    pass


def test_a_net_that_takes_any_tape_is_seen(monkeypatch):
    monkeypatch.setattr("refnet.nets.base.admit_tape", unchecked)
    with pytest.raises(AssertionError):
        refused_or_right(BASES["rnn"], replace(BASES["rnn"], gain=2))


@pytest.mark.skipif(not JIT, reason="plain Python needs no second check")
@pytest.mark.parametrize("base", ["rnn", "lstm", "feedforward"])
def test_kernels_check_for_themselves(base, monkeypatch):
    """Behind a net that takes any tape, the caller of a kernel still refuses other sizes; behind
    both, with NUMBA_BOUNDSCHECK=1, the kernel notices."""
    net = replace(BASES[base], backend="compiled")
    params, x = drawn(net)
    outputs, tape = net.forward(params, x)
    other = replace(net, activation="elu")  # whose slope needs what the tape has not kept
    monkeypatch.setattr("refnet.nets.base.admit_tape", unchecked)
    with refused("backward: a kernel's arrays hold"):
        other.backward(params, tape, outputs)
    if CHECKED and base != "feedforward":
        monkeypatch.setattr(walk, "admit_counts", unchecked)
        with refused("past the end", IndexError):
            tape = tape._replace(cell=tape.cell._replace(h=tape.cell.h[:3]))
            net.backward(params, tape, outputs)


@pytest.mark.skipif(CHECKED or not JIT, reason="runs itself, or there is nothing to check")
def test_with_bounds_checked():
    """All of that where kernels check every index: a wrong one would be an IndexError. (A kernel
    kept by a process without the check must not be loaded.)"""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            __file__,
            "-k",
            "(one_field and compiled or themselves) and (rnn or lstm or feedforward)",
        ],
        text=True,
        capture_output=True,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("base", [*BASES, "sqrt", "none", "given h0"])
def test_changed_in_place(base, backend):
    """Between the passes: x, the mask or the outputs, without effect; a parameter, refused."""
    net = BASES.get(base, BASES["lstm"])
    if base == "sqrt":
        net = replace(net, checkpoint="sqrt")
    elif base == "none":
        net = replace(BASES["stacked"], readout="none")
    net = replace(net, backend=backend)
    params, x = drawn(net)
    if base == "given h0":
        params["h0"] = np.ones((2, 2, 4), np.float32)
    mask = None if base == "feedforward" else np.array([[1, 1]] * 3 + [[0, 1]] * 2, bool)
    outputs, tape = net.forward(params, x, mask)
    d = np.ones_like(outputs)
    want = net.backward(params, tape, d)
    for array in (x, outputs, *([] if mask is None else [mask])):
        array[...] = 1 - array
    for _ in range(2):
        computed = net.backward(params, tape, d)
        assert all(np.array_equal(computed[name], want[name]) for name in want)
    for name, value in params.items():
        before = value.copy()
        value += 1
        with refused(rf"was given, in {name};"):
            net.backward(params, tape, d)
        value[...] = before
    net.backward({name: value.copy() for name, value in params.items()}, tape, d)


def test_numbers_that_differ_from_themselves():
    """NaN among the parameters is no change; objects are compared as objects."""
    params, x = drawn(BASES["rnn"])
    params["by"][0] = np.nan
    outputs, tape = BASES["rnn"].forward(params, x)
    BASES["rnn"].backward(params, tape, outputs)
    net = replace(BASES["rnn"], activation="identity")
    params, x = (
        {
            name: np.vectorize(Fraction, otypes=[object])(value)
            for name, value in drawn(net)[0].items()
        },
        np.full((2, 1, 2), Fraction(1)),
    )
    outputs, tape = net.forward(params, x)
    net.backward(params, tape, outputs)
    params["by"][0] += 1
    with refused(", in by;"):
        net.backward(params, tape, outputs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("base", BASES)
def test_what_is_no_tape(base, backend):
    net = replace(BASES[base], backend=backend)
    params, x = drawn(net)
    outputs, tape = net.forward(params, x)
    for wrong in (None, x, tape.cell, (tape, tape), {}, net):
        with refused(r"^\w+.backward: tape is .*; need .*forward gives", TypeError):
            net.backward(params, wrong, outputs)
    with refused("params is None", TypeError):
        net.backward(None, tape, outputs)
    last, *others = reversed(params)
    with refused(f"given, in {last};"):
        net.backward({name: params[name] for name in others}, tape, outputs)
    for other in BASES.values():
        if type(other) is not type(net):
            with refused(f"class={type(net).__name__}; need class="):
                other.backward(drawn(other)[0], tape, outputs)
    for shape in ((), (0, 4), (*outputs.shape, 1), outputs[1:].shape, outputs[..., 1:].shape):
        with refused("doutputs has shape"):
            net.backward(params, tape, np.ones(shape, np.float32))


def test_gradients_without_copies_are_the_same():
    for net in BASES.values():
        net = replace(net, loss="squared_error")
        params, x = drawn(net)
        outputs, tape = net.forward(params, x, copy=False)
        assert tape.given is params
        computed = loss_and_gradients(net, params, Batch(x, outputs - 1 / 2)).gradients
        want = net.backward(params, tape, np.full_like(outputs, 1 / outputs.size))
        assert all(np.allclose(computed[name], want[name], rtol=1e-5, atol=1e-6) for name in want)


def tampered(net, **parts):
    """Backward with a tape whose cell has lost the last entry of some parts."""
    params, x = drawn(net)
    outputs, tape = net.forward(params, x)
    cell = tape.cell._replace(
        **{name: part(getattr(tape.cell, name)) for name, part in parts.items()}
    )
    net.backward(params, tape._replace(cell=cell), outputs)


LSTM, FF = (replace(BASES[base], backend="compiled") for base in ("lstm", "feedforward"))
F4 = np.ones(6, np.float32)
WRONG = {
    **{
        f"a tape's {name}": lambda name=name: tampered(LSTM, **{name: lambda part: part[:-1]})
        for name in ("x", "h", "c", "v", "k")
    },
    **{
        f"noise, {name}": lambda name=name: replace(LSTM.layer, noise={name: F4}).forward(
            *drawn(LSTM), np.zeros((2, 2, 4), np.float32), unchecked
        )
        for name in ("drop", "shares", "added")
    },
    "rows of a feedforward tape": lambda: tampered(FF, h=lambda part: part[:-1]),
    "matrices of a feedforward tape": lambda: tampered(
        FF, weights=lambda weights: weights._replace(sizes=weights.sizes._replace(counts=[]))
    ),
    "a float64 tape of float32 matrices": lambda: tampered(FF, h=lambda part: part.astype(float)),
    "a product": lambda: products.matmul(
        np.ones((2**15, 9), np.float32), np.ones((8, 16), np.float32)
    ),
    "gradients": lambda: elementwise.stepped("sgd", [F4], [F4[:5]], [], [[1.0]]),
    "no gradients": lambda: elementwise.stepped("sgd", [F4], [], [], [[1.0]]),
    "no accumulators": lambda: elementwise.stepped("adam", [F4], [F4], [F4], [[1.0] * 10]),
    "rows of constants": lambda: elementwise.stepped("sgd", [F4], [F4], [], [[1.0], [1.0]]),
    "constants": lambda: elementwise.stepped("momentum", [F4], [F4], [F4], [[1.0, 1.0]]),
    "squares": lambda: elementwise.stepped("rmsprop", [F4], [F4], [F4[:5]], [[1.0] * 5]),
    "labels": lambda: losses.classified(np.ones((3, 2)), np.array([0, 1, 2])),
    "fewer labels": lambda: losses.classified(np.ones((3, 2)), np.array([0, 1])),
    "logits": lambda: losses.classified(np.ones((3, 2, 2)), np.array([0, 1, 1])),
    "a descent": lambda: orthogonality.descend(np.ones((1, 3, 1)), 0.1, 1e-3, 5),
}


@pytest.mark.parametrize("what", WRONG)
def test_other_sizes_reach_no_kernel(what):
    with pytest.raises(ValueError):
        WRONG[what]()


def test_a_cotangent_in_another_dtype():
    """The compiled feedforward net reads its matrices by address, as the tape's dtype."""
    params, x = drawn(FF)
    outputs, tape = FF.forward(params, x)
    want = FF.backward(params, tape, np.ones_like(outputs))
    computed = FF.backward(params, tape, np.ones(outputs.shape))
    assert all(np.array_equal(computed[name], want[name]) for name in want)
    with refused("FeedforwardNet.backward: doutputs is float64"):
        FF.backward(params, tape, np.full(outputs.shape, 0.1))
