"""LSTM and GRU: the backward pass is the transpose of the forward pass, a state is all there is,
and planted bugs are rejected."""

from importlib import import_module
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.maths.dual import dual_array, parts
from support.oracles import dot, planted
from support.rational import RATIONAL_GATE, SOFTSIGN, generic, shapes
from support.strategies import arrays

CELLS = ("lstm", "gru", "gru_before")


class Case(NamedTuple):
    """``dh`` is the cotangent of the last states, ``dc`` of the last cell (LSTM only)."""

    gate: Activation
    cell: object
    p: dict
    x: object
    h0: object
    act: Activation
    dh: object
    dc: object
    direction: dict


def build(draw, name, sizes, gate, act, peepholes, K):
    T, B, D, H = sizes
    cell, need, x, h0 = shapes(name, *sizes, act, peepholes)
    names = {**need, "x": x, "h0": h0}
    p = {key: draw(shape) for key, shape in need.items()}
    return Case(
        gate,
        cell,
        p,
        draw(x),
        draw(h0),
        act,
        draw((K, B, H)),
        draw((B, H)) if name == "lstm" else None,
        {key: draw(shape) for key, shape in names.items()},
    )


@st.composite
def cases(draw, name, exact=True):
    act = ACTIVATIONS[
        draw(
            st.sampled_from(
                ["softsign", "identity", "prelu", "oplu", "relu"] if exact else ["tanh", "sigmoid"]
            )
        )
    ]
    T, B, D = (draw(st.integers(1, 2)) for _ in range(3))
    H = 2 if act.name == "oplu" else draw(st.integers(1, 2))
    peepholes = draw(st.sampled_from([(), ("Wpi", "Wpf", "Wpo"), ("Wpo",)]))
    return build(
        lambda shape: draw(arrays(shape, exact)),
        name,
        (T, B, D, H),
        RATIONAL_GATE if exact else ACTIVATIONS["sigmoid"],
        act,
        peepholes if name == "lstm" else (),
        draw(st.integers(1, T)),
    )


def generic_case(name, seed):
    """Two steps with a cotangent on the last; no zeros, ties or repeats, so every bug shows."""
    rng = np.random.default_rng(seed)

    def draw(shape):
        return generic(rng, shape, 64)

    peepholes = ("Wpi", "Wpf", "Wpo") if name == "lstm" else ()
    return build(draw, name, (2, 2, 2, 3), RATIONAL_GATE, SOFTSIGN, peepholes, 1)


def pulled(case, backward=None):
    tape = case.cell.forward(case.p, case.x, case.h0, case.act, case.gate)
    dc = {} if case.dc is None else {"dc": case.dc}
    return (backward or case.cell.backward)(case.p, tape, case.dh, case.act, gate=case.gate, **dc)


def push_minus_pull(case, backward=None):
    """``<w, J v> - <J' w, v>``: the push is the forward pass on dual numbers."""
    lift = {
        name: dual_array(value, case.direction[name])
        for name, value in {**case.p, "x": case.x, "h0": case.h0}.items()
    }
    tape = case.cell.forward(lift, lift["x"], lift["h0"], case.act, case.gate)
    push = (parts(tape.h[-len(case.dh) :])[1] * case.dh).sum()
    if case.dc is not None:
        push = push + (parts(tape.c[-1])[1] * case.dc).sum()
    return push - dot(pulled(case, backward), case.direction)


@pytest.mark.parametrize("name", CELLS)
@given(data=st.data())
def test_push_equals_pull(name, data):
    assert push_minus_pull(data.draw(cases(name))) == 0


def complex_step_error(case, backward=None):
    """|push - pull| over a bound on its rounding error: at most 1 for a correct backward.

    ``Im f(x + i s v) / s`` has no truncation error. A path back through one step passes one of
    four gates (slopes at most 1), an entry of Whh or a peephole, and a factor that is a
    state or a gate's value, at most ``top``; it ends at a weight times an input or state.
    Paths are added up by at most n rounded operations.
    """
    step = 2.0**-300
    lift = {
        key: value + 1j * (step * case.direction[key])
        for key, value in {**case.p, "x": case.x, "h0": case.h0}.items()
    }
    tape = case.cell.forward(lift, lift["x"], lift["h0"], case.act, case.gate)
    push = (tape.h[-len(case.dh) :].imag / step * case.dh).sum()
    if case.dc is not None:
        push += (tape.c[-1].imag / step * case.dc).sum()
    T, B, D = case.x.shape
    H = case.p["Whh"].shape[1]
    top = 1 + T + max(abs(case.x).max(), abs(case.h0).max())
    per_step = 1 + 4 * (H + 1) * max(abs(value).max() for value in case.p.values()) * top
    cotangent = abs(case.dh).sum() + (0 if case.dc is None else abs(case.dc).sum())
    scale = per_step**T * top * cotangent * sum(abs(v).sum() for v in case.direction.values())
    n = 8 * T * (H + D + 8) + T * B
    return abs(push - dot(pulled(case, backward), case.direction)) / (
        n * np.finfo(float).eps * scale + np.finfo(float).tiny
    )


@pytest.mark.parametrize("name", CELLS)
@given(data=st.data())
def test_complex_step(name, data):
    assert complex_step_error(data.draw(cases(name, exact=False))) <= 1


@pytest.mark.parametrize("name", CELLS)
def test_complex_step_rejects(name):
    """A slope that is off by one part in a million is far outside the bound."""
    rng = np.random.default_rng(5)
    case = build(
        lambda shape: rng.uniform(-1, 1, shape),
        name,
        (2, 2, 2, 2),
        ACTIVATIONS["sigmoid"],
        ACTIVATIONS["tanh"],
        (),
        2,
    )
    assert complex_step_error(case) <= 1

    def wrong(p, tape, dh, act, **options):
        off = Activation(
            "off", act.value, lambda a, h, dh, p, alpha: ((1 - (1 - 1e-6) * h * h) * dh, {})
        )
        return case.cell.backward(p, tape, dh, off, **options)

    assert complex_step_error(case, wrong) > 1


BUGS = {
    "lstm": {
        "gates swapped": ("q * v[t, :, 2], p)", "q * v[t, :, 3], p)"),
        "output gate sees the old cell": (
            "zip(PEEPHOLES, (0, 1, 3), (c[:-1], c[:-1], c[1:]))",
            "zip(PEEPHOLES, (0, 1, 3), (c[:-1], c[:-1], c[:-1]))",
        ),
        "cell carry dropped": ("q = q * v[t, :, 1]", "q = 0 * q"),
        "peephole path dropped": ('q = q + p["Wpo"] * da[t, :, 3]', "pass"),
        "wrong cell in act'": ("act.backward(c[t + 1], k[t]", "act.backward(c[t], k[t]"),
        "final cell gradient dropped": ("shape=(B, H)) if dc is None else dc", "shape=(B, H))"),
        "h of the wrong step": ("h[:-1].reshape", "h[1:].reshape"),
        "one entry off by 0.1%": (
            "    if inputs:\n",
            "    grads['Whh'][5, 1] *= 1 + type(grads['Whh'][5, 1])(1) / 1000\n    if inputs:\n",
        ),
    },
    "gru": {
        "reset gate left out of dWhh": (
            "recurrent[t, :, 2] = da[t, :, 2] * r",
            "recurrent[t, :, 2] = da[t, :, 2]",
        ),
        "bhn as bh": ("recurrent[:, :, 2].sum(axis=(0, 1))", "da[:, :, 2].sum(axis=(0, 1))"),
        "update gate reversed": ("e * (1 - z), p)", "e * z, p)"),
        "direct carry dropped": ("e = e * z + ", "e = "),
        "h of the wrong step": ("h[:-1].reshape", "h[1:].reshape"),
    },
    "gru_before": {
        "reset gate left out of the carry": ("w * r", "w"),
        "state not reset in dWhh": ("reset = (v[:, :, 0] * h[:-1])", "reset = (h[:-1])"),
        "update gate reversed": ("e * (1 - z), p)", "e * z, p)"),
        "wrong transpose": ("w = matmul(da[t, :, 2], new)", "w = matmul(da[t, :, 2], new.T)"),
    },
}


@pytest.mark.parametrize("name,bug", [(name, bug) for name in BUGS for bug in BUGS[name]])
def test_push_equals_pull_rejects(name, bug):
    case = generic_case(name, seed=len(bug))
    assert push_minus_pull(case) == 0
    assert push_minus_pull(case, planted(case.cell.backward, *BUGS[name][bug])) != 0


@pytest.mark.parametrize("name", CELLS)
def test_state_is_all_there_is(name):
    """Running T steps at once equals running them in two pieces, the state carried over, and
    so do the gradients with the state's own gradient carried back (checkpointing)."""
    case = generic_case(name, seed=3)
    T, cut = len(case.x), 1
    whole = case.cell.forward(case.p, case.x, case.h0, case.act, case.gate)
    head = case.cell.forward(case.p, case.x[:cut], case.h0, case.act, case.gate)
    middle = np.stack([head.h[-1], head.c[-1]]) if name == "lstm" else head.h[-1]
    tail = case.cell.forward(case.p, case.x[cut:], middle, case.act, case.gate)
    assert (whole.h[cut:] == tail.h).all()

    expected = pulled(case)
    dc = {} if case.dc is None else {"dc": case.dc}
    late = case.cell.backward(case.p, tail, case.dh, case.act, gate=case.gate, **dc)
    assert len(case.dh) == T - cut
    if name == "lstm":
        dh, dc = late["h0"][:1], {"dc": late["h0"][1]}
    else:
        dh, dc = late["h0"][None], {}
    early = case.cell.backward(case.p, head, dh, case.act, gate=case.gate, **dc)
    assert (early["h0"] == expected["h0"]).all()
    for key in case.p:
        assert (early[key] + late[key] == expected[key]).all()


@pytest.mark.parametrize("name", CELLS)
def test_clip_inside_the_recursion(name):
    """A bound that nothing reaches changes nothing; one that something reaches bounds every
    da, which at T = 1 are the entries of the bias gradients at B = 1."""
    case = generic_case(name, seed=9)
    tape = case.cell.forward(case.p, case.x, case.h0, case.act, case.gate)
    plain = case.cell.backward(case.p, tape, case.dh, case.act, gate=case.gate)
    loose = case.cell.backward(case.p, tape, case.dh, case.act, gate=case.gate, clip=10**9)
    assert loose.pop("clipped") == 0
    assert all((loose[key] == plain[key]).all() for key in plain)

    last = case.cell.forward(case.p, case.x[:1, :1], case.h0[..., :1, :], case.act, case.gate)
    free = case.cell.backward(case.p, last, case.dh[:, :1], case.act, gate=case.gate)["bh"]
    bound = sorted(abs(free))[len(free) // 2]
    cut = case.cell.backward(case.p, last, case.dh[:, :1], case.act, gate=case.gate, clip=bound)
    assert cut["clipped"] >= 1 and max(abs(cut["bh"])) == bound


def test_init():
    lstm, gru, before = (import_module(f"refnet.cells.{name}") for name in CELLS)
    assert list(lstm.init(2)["bh"]) == [0, 0, 1, 1, 0, 0, 0, 0]
    assert set(lstm.init(2, forget=0, peepholes=True)) == {"bh", *lstm.PEEPHOLES}
    assert gru.init(2)["bhn"].shape == (2,) and set(before.init(2)) == {"bh"}
