"""Every cell: the backward pass is the transpose of the forward pass, a state is all there is, and
planted bugs are rejected."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from refnet.cells import CELLS
from refnet.maths.activations import ACTIVATIONS, Activation
from refnet.prove.checks import RATIONAL_GATE, SOFTSIGN, generic
from support.oracles import dot, gap, planted
from support.strategies import arrays

SIGMOID = ACTIVATIONS["sigmoid"]


class Case(NamedTuple):
    """``at``: parameters, x and h0; ``dh`` is the cotangent of the last states, ``dc`` holds that
    of the last cell state, if there is one."""

    cell: object
    act: Activation
    gates: dict
    at: dict
    direction: dict
    dh: object
    dc: tuple

    def run(self, **changes):
        at = {**self.at, **changes}
        return self.cell.forward(at, at["x"], at["h0"], self.act, **self.gates)

    def pulled(self, tape, dh, dc=(), backward=None, **options):
        backward = backward or self.cell.backward
        return backward(self.at, tape, (dh, *dc) if dc else dh, self.act, **self.gates, **options)


def build(fill, name, sizes, gate, act, K, optional=()):
    T, B, D, H = sizes
    cell = CELLS[name]
    G = len(cell.GATES)
    shapes = {key: value.shape for key, value in (cell.init(H) | act.init(H)).items()}
    shapes |= dict.fromkeys(optional, (H,))
    shapes |= {"Whh": (G * H, H), "Wxh": (G * H, D), "x": (T, B, D)}
    shapes["h0"] = (2, B, H) if cell.STATES == 2 else (B, H)
    at, direction = ({key: fill(shape) for key, shape in shapes.items()} for _ in range(2))
    dc = (fill((B, H)),) if cell.STATES == 2 else ()
    return Case(cell, act, {"gate": gate} if G > 1 else {}, at, direction, fill((K, B, H)), dc)


@st.composite
def cases(draw, name, exact=True):
    names = ["softsign", "identity", "prelu", "oplu", "relu"] if exact else ["tanh", "sigmoid"]
    act = ACTIVATIONS[draw(st.sampled_from(names))]
    T, B, D = (draw(st.integers(1, 2)) for _ in range(3))
    H = 2 if act.name == "oplu" else draw(st.integers(1, 2))
    optional = draw(st.sampled_from([(), CELLS[name].OPTIONAL, CELLS[name].OPTIONAL[-1:]]))
    gate = RATIONAL_GATE if exact else SIGMOID
    K = draw(st.integers(1, T))
    return build(
        lambda shape: draw(arrays(shape, exact)), name, (T, B, D, H), gate, act, K, optional
    )


def generic_case(name, seed):
    """Two steps with a cotangent on the last; no zeros, ties or repeats, so every bug shows."""
    fill = partial(generic, np.random.default_rng(seed), under=64)
    return build(fill, name, (2, 2, 2, 3), RATIONAL_GATE, SOFTSIGN, 1, CELLS[name].OPTIONAL)


def flat(*values):
    return np.concatenate([value.reshape(-1) for value in values])


def last_states(case, at):
    tape = case.run(**at)
    return flat(tape.h[-len(case.dh) :], *(tape.c[-1] for _ in case.dc))


def pulled(case, backward=None):
    return case.pulled(case.run(), case.dh, case.dc, backward)


def push_minus_pull(case, backward=None):
    cotangent = flat(case.dh, *case.dc)
    return gap(
        partial(last_states, case), case.at, case.direction, cotangent, pulled(case, backward)
    )


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
    shifted = {key: value + 1j * (step * case.direction[key]) for key, value in case.at.items()}
    cotangent = flat(case.dh, *case.dc)
    push = (last_states(case, shifted).imag / step * cotangent).sum()
    T, B, D = case.at["x"].shape
    H = case.at["Whh"].shape[1]
    largest = {key: abs(value).max() for key, value in case.at.items()}
    top = 1 + T + max(largest.pop("x"), largest.pop("h0"))
    per_step = 1 + 4 * (H + 1) * max(largest.values()) * top
    size = abs(cotangent).sum() * sum(abs(v).sum() for v in case.direction.values())
    scale = per_step**T * top * size
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
    fill = partial(np.random.default_rng(5).uniform, -1, 1)
    case = build(fill, name, (2, 2, 2, 2), SIGMOID, ACTIVATIONS["tanh"], 2)
    assert complex_step_error(case) <= 1
    assert all((value * case.direction[key]).sum() for key, value in pulled(case).items())

    def wrong(p, tape, dh, act, **options):
        def pull(a, h, dh, p, alpha):
            return (1 - (1 - 1e-6) * h * h) * dh, {}

        return case.cell.backward(p, tape, dh, replace(act, pull=pull), **options)

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
        "wrong transpose": ("matmul(da[t, :, 2], new)", "matmul(da[t, :, 2], new.T)"),
    },
}


@pytest.mark.parametrize("name,bug", [(name, bug) for name in BUGS for bug in BUGS[name]])
def test_push_equals_pull_rejects(name, bug):
    case = generic_case(name, seed=len(bug))
    assert push_minus_pull(case) == 0
    assert push_minus_pull(case, planted(case.cell.backward, *BUGS[name][bug])) != 0


@pytest.mark.parametrize("name", CELLS)
def test_pieces_with_the_state_carried_over_equal_the_whole(name):
    """Running T steps at once equals running them in two pieces, the state carried over, and
    so do the gradients with the state's own gradient carried back (checkpointing)."""
    case = generic_case(name, seed=3)
    x, dh = case.at["x"], case.dh
    whole, head = case.run(), case.run(x=x[:1])
    middle = np.stack([head.h[-1], head.c[-1]]) if case.dc else head.h[-1]
    tail = case.run(x=x[1:], h0=middle)
    assert (whole.h[1:] == tail.h).all()

    expected = case.pulled(whole, dh, case.dc)
    late = case.pulled(tail, dh, case.dc)
    carry, dc = (late["h0"][:1], (late["h0"][1],)) if case.dc else (late["h0"][None], ())
    early = case.pulled(head, carry, dc)
    assert (early["h0"] == expected["h0"]).all()
    for key in set(case.at) - {"x", "h0"}:
        assert (early[key] + late[key] == expected[key]).all()


@pytest.mark.parametrize("name", sorted(set(CELLS) - {"cifg"}))
def test_clip_inside_the_recursion(name):
    """A bound that nothing reaches changes nothing; one that something reaches bounds every
    da, which at T = 1 are the entries of the bias gradients at B = 1."""
    case = generic_case(name, seed=9)
    tape = case.run()
    plain, loose = (case.pulled(tape, case.dh, clip=clip) for clip in (None, 10**9))
    assert loose.pop("clipped") == 0
    assert all((loose[key] == plain[key]).all() for key in plain)

    last = case.run(x=case.at["x"][:1, :1], h0=case.at["h0"][..., :1, :])
    free = abs(case.pulled(last, case.dh[:, :1])["bh"])
    bound = sorted(free)[len(free) // 2]
    cut = case.pulled(last, case.dh[:, :1], clip=bound)
    assert cut["clipped"] >= 1 and max(abs(cut["bh"])) == bound


def test_init():
    lstm, gru, before = (CELLS[name] for name in ("lstm", "gru", "gru_before"))
    assert list(lstm.init(2)["bh"]) == [0, 0, 1, 1, 0, 0, 0, 0]
    assert set(lstm.init(2, forget=0, peepholes=True)) == {"bh", *lstm.PEEPHOLES}
    assert gru.init(2)["bhn"].shape == (2,) and set(before.init(2)) == {"bh"}
