"""Sequences in pieces: each starts at the states in which the one before ended."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.cells import CELLS, common
from refnet.nets import base
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.layer import Layer
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from support.arguments import refused
from support.oracles import loss_push_minus_pull, planted
from support.rational import generic_case
from support.stacked import rational_net

NETS = {
    "rnn": {},
    "gru": {"cell": "gru", "layers": 1, "embedding": 2},
    "lstm": {"cell": "lstm", "layers": 1},
    "projection": {"cell": "lstm", "projection": 1, "layers": 1},
    "checkpoints": {"cell": "lstm", "checkpoint": "sqrt", "layers": 1},
    "zoneout": {"cell": "cifg", "zoneout": Fraction(1, 4), "layers": 1},
}
CUT = 2


def pieces(net, params, batch):
    """The results of two pieces, the second from the states of the first, and the second's case."""
    first, second = (Batch(batch.x[part], batch.y[part]) for part in (slice(CUT), slice(CUT, None)))
    before = loss_and_gradients(net, params, first, final=True)
    started = {**params, **before.final}
    return before, loss_and_gradients(net, started, second, final=True), started, second


def rational(name, seed=3):
    net = rational_net(readout="every", both=False, **NETS[name])
    return net, generic_case(net, seed, T=3, B=2)


def whole(net, params, batch):
    """The outputs, and the states after every step, of the sequences in one."""
    outputs, tape = replace(net, checkpoint="none").forward(params, batch.x)
    return outputs, tape.cells


@pytest.mark.parametrize("name", NETS)
def test_pieces_are_the_sequence_but_for_the_gradient_across_the_cut(name):
    """On rationals: outputs and states of the whole; the gradients of a net whose initial states
    are constants, of which the tangent of the loss, pushed forward, is <gradient, direction>."""
    net, case = rational(name)
    before, after, started, second = pieces(net, case.params, case.batch)
    outputs, tapes = whole(net, case.params, case.batch)
    assert (np.concatenate([before.outputs, after.outputs]) == outputs).all()
    assert before.final.keys() == after.final.keys() == {f"h0{suffix}" for suffix in tapes}
    for suffix, tape in tapes.items():
        for at, result in ((CUT, before), (3, after)):
            state = result.final[f"h0{suffix}"]
            h, c = state if state.ndim == 3 else (state, None)
            assert (h[:, : tape.h.shape[2]] == tape.h[at]).all()
            assert not h[:, tape.h.shape[2] :].any()
            assert c is None or (c == tape.c[at]).all()
    constants = {f"h0{s}": before.final[f"h0{s}"].copy() for s in tapes}
    alone = loss_and_gradients(net, {**case.params, **constants}, second)
    for key, value in alone.gradients.items():
        assert (after.gradients[key] == value).all()
    direction = {k: v for k, v in case.direction.items() if k in case.params and k not in constants}
    assert (
        loss_push_minus_pull(case._replace(params=started, batch=second, direction=direction)) == 0
    )


BUGS = {
    "not carried": ("tape.h[-1].copy()", "tape.h[0].copy()"),
    "of another row": ("tape.h[-1].copy()", "tape.h[-1, ::-1].copy()"),
    "a step early": ("tape.h[-1].copy()", "tape.h[-2].copy()"),
    "c not carried": ("c[-1]])", "c[0]])"),
    "c of another row": ("c[-1]])", "c[-1, ::-1]])"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_rejected(bug, monkeypatch):
    monkeypatch.setattr(base, "last_state", planted(common.last_state, *BUGS[bug]))
    net, case = rational("lstm" if bug.startswith("c ") else "rnn")
    outputs, _ = whole(net, case.params, case.batch)
    assert (pieces(net, case.params, case.batch)[1].outputs != outputs[CUT:]).any()


def gradients_by_pieces(net, params, x, doutputs):
    """Those of the whole, from the pullbacks of two pieces: the second's first."""
    outputs, tape = net.forward(params, x[:CUT])
    final = tape.final
    started = {**params, **final}
    after = net.backward(started, net.forward(started, x[CUT:])[1], doutputs[CUT:])
    before = net.backward(
        params, tape, doutputs[:CUT], final={name: after.pop(name) for name in final}
    )
    assert final.keys() <= before.keys()
    joined = {"x": np.concatenate([before["x"], after.pop("x")])}
    return before | {name: before[name] + value for name, value in after.items()} | joined


def differences(net, params, x, doutputs):
    whole = net.backward(params, net.forward(params, x)[1], doutputs)
    pieces = gradients_by_pieces(net, params, x, doutputs)
    return sum(np.abs(pieces[name] - value).sum() for name, value in whole.items())


def cotangent(net, x):
    rng = np.random.default_rng(5)
    return rng.integers(-3, 4, (*x.shape[:2], net.outputs)).astype(object) + Fraction(0)


@pytest.mark.parametrize("name", NETS)
def test_the_gradient_across_the_cut(name):
    """With the cotangents of the final states, on rationals: all of the whole's."""
    net = rational_net(readout="every", both=False, **NETS[name])
    case = generic_case(net, seed=4, T=3, B=2)
    net = replace(net, loss="none", reduction="sum")
    assert differences(net, case.params, case.batch.x, cotangent(net, case.batch.x)) == 0


@pytest.mark.parametrize(
    "bug",
    [
        ("else carry[0][:, : dh.shape[2]]", "else 0"),
        ("(dh, carry[1])", "dh"),
        ("dh[-1:] +=", "dh[:1] +="),
    ],
)
def test_a_planted_bug_of_the_gradient_across_the_cut(bug, monkeypatch):
    net, case = rational("lstm")
    net = replace(net, loss="none", reduction="sum")
    monkeypatch.setattr(Layer, "backward", planted(Layer.backward, *bug))
    assert differences(net, case.params, case.batch.x, cotangent(net, case.batch.x)) != 0


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_the_compiled_core_has_the_states_of_its_whole(cell, layers):
    """With a tape, and with what a forward pass alone keeps: the same bits."""
    net = StackedNet(3, 5, 2, cell=cell, readout="every", layers=layers, backend="compiled")
    params = net.init(np.random.default_rng(0))
    x = np.random.default_rng(1).standard_normal((7, 4, 3)).astype(np.float32)
    outputs, tape = net.forward(params, x)
    for checkpoint in ("none", "forward", "sqrt"):
        part = replace(net, checkpoint=checkpoint)
        first = part.forward(params, x[:3])[1].final
        later, end = part.forward({**params, **first}, x[3:])
        assert (later == outputs[3:]).all()
        assert all((end.final[name] == value).all() for name, value in tape.final.items())


def test_final_is_refused_of_sequences_of_different_lengths():
    net = RecurrentNet(2, 3, 2, readout="every")
    params, y = net.init(np.random.default_rng(0)), np.zeros((4, 2), int)
    mask = np.arange(4)[:, None] < np.array([4, 3])
    batch = Batch(np.ones((4, 2, 2), np.float32), y, mask)
    with refused("final is wanted of sequences of different lengths"):
        loss_and_gradients(net, params, batch, final=True)
    assert loss_and_gradients(net, params, batch).final == {}
