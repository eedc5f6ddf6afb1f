"""Layers on top of each other and in both directions: the backward pass is the transpose of the
forward pass, which is PyTorch's; padding, segments and backends change nothing."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from refnet.check.cases import reference_results
from refnet.check.verdict import compare
from refnet.exact import certify
from refnet.nets.gradients import loss_and_gradients, per_example_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients, state_jacobians, step_jacobians
from support.arguments import refused
from support.drawn import padded
from support.oracles import loss_push_minus_pull, planted, push_minus_pull
from support.rational import generic_case
from support.stacked import rational_net
from support.strategies import drawn_case

EPS = np.finfo(float).eps
CELLS = ("rnn", "lstm", "gru", "gru_before", "cifg")


@st.composite
def cases(draw, cell):
    readout = draw(st.sampled_from(["last", "every", "none"]))
    T, B, D, H = (draw(st.integers(1, n)) for n in (2, 2, 1, 2))
    net = rational_net(
        cell,
        readout,
        draw(st.sampled_from(["squared_error", "none"])),
        draw(st.integers(1, 2)),
        draw(st.booleans()),
        D,
        H,
        draw(st.sampled_from(["softsign", "identity", "relu"])),
    )
    return drawn_case(draw, net, T, B)


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=12)
@given(data=st.data())
def test_push_equals_pull(cell, data):
    case = data.draw(cases(cell))
    assert push_minus_pull(case) == 0
    assert loss_push_minus_pull(case) == 0


BUGS = {
    "the second direction's gradient is not turned": (
        "dh = (turned(d[:, :, part], steps, suffix)",
        'dh = (turned(d[:, :, part], steps, "")',
    ),
    "nor is that of its input": (
        'turned(pulled.pop("x"), steps, suffix)',
        'turned(pulled.pop("x"), steps, "")',
    ),
    "turned as if all sequences were full": (
        'below.append(turned(pulled.pop("x"), steps, suffix))',
        'below.append(turned(pulled.pop("x"), np.full_like(steps, T), suffix))',
    ),
    "the directions' parts are swapped": (
        "part = slice(n * cell.width, (n + 1) * cell.width)",
        "part = slice((1 - n) * cell.width, (2 - n) * cell.width)",
    ),
    "one direction alone reaches the layer below": ("sum(below[1:], below[0])", "below[0]"),
    "what follows a sequence has a gradient": (
        "d = masked(d.reshape(T, B, self.width), steps if tape.lengths is None else T)",
        "d = d.reshape(T, B, self.width)",
    ),
    "the read-out stays in place below": ("last = None\n", "pass\n"),
    "a sequence without steps is forgotten": (
        "(steps == 0)[:, None], last[:, part], 0)",
        "(steps < 0)[:, None], last[:, part], 0)",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_push_equals_pull_rejects(bug, monkeypatch):
    wrong = planted(StackedNet._pull_cells, *BUGS[bug])
    readout = "last" if "read-out" in bug or "without" in bug else "every"
    case = generic_case(rational_net("rnn", readout), seed=len(bug), B=3, mask=True)
    assert push_minus_pull(case) == 0
    monkeypatch.setattr(StackedNet, "_pull_cells", wrong)
    assert push_minus_pull(case) != 0


@pytest.mark.parametrize("cell", CELLS)
def test_certified_and_compiled(cell):
    """Both backends' gradients are explained by rounding; one entry off by 0.1% is not."""
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    net = StackedNet(
        2,
        3,
        3,
        cell=cell,
        readout="every",
        layers=2,
        bidirectional=True,
        learn_h0=True,
        backend="reference",
    )
    params, batch = padded(net, dtype=np.float32)
    certified = certify(net, params, batch)
    for backend in ("reference", "compiled"):
        theirs = reference_results(replace(net, backend=backend), params, batch)
        assert compare(theirs, certified).passed, backend
    theirs["dWhh_l0_reverse"] = theirs["dWhh_l0_reverse"] * np.float32(1.001)
    assert compare(theirs, certified).verdict == "not rounding"


def test_shares_of_the_batch_add_up():
    net = StackedNet(
        2,
        3,
        2,
        cell="lstm",
        readout="every",
        layers=2,
        bidirectional=True,
        learn_h0=True,
        backend="reference",
    )
    params, batch = padded(net)
    whole = loss_and_gradients(net, params, batch).gradients
    shares = per_example_gradients(net, params, batch)
    total = sum(share.gradients["Wxh_l1_reverse"] for share in shares)
    assert abs(total - whole["Wxh_l1_reverse"]).max() <= 1e-14 * len(shares)  # entries below 1
    assert shares[0].gradients["h0_l1"].shape == (2, 1, 3)


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_an_embedding_of_the_inputs(cell):
    """Both directions of the lowest layer have one; the product's factors get its gradient."""
    net = rational_net(cell, "every", layers=2 if cell == "rnn" else 1, embedding=2)
    case = generic_case(net, seed=8, T=2, B=1)
    assert [name for name in case.params if name.endswith(".E")] == ["Wxh_l0.E", "Wxh_l0_reverse.E"]
    assert push_minus_pull(case) == 0

    def wrong(*arguments):
        gradients = net.backward(*arguments[1:])
        return {**gradients, "Wxh_l0.E": case.params["Wxh_l0.W"].T @ gradients["Wxh_l0.W"]}

    assert push_minus_pull(case, wrong) != 0


def test_with_matrices():
    net = StackedNet(2, 3, 2, layers=2, backend="reference")
    params = padded(net)[0]
    changed = net.with_matrices(params, {"Whh_l1": np.eye(3)})
    assert (changed["Whh_l1"] == np.eye(3)).all() and (changed["Whh_l0"] == params["Whh_l0"]).all()
    assert set(changed) == set(params)


def test_what_does_not_fit_is_refused():
    with refused("need 8, the width of a layer"):
        StackedNet(2, 4, 3, readout="none", bidirectional=True)
    with refused("need 'sum' with the loss 'none'"):
        StackedNet(2, 4, 3, loss="none")
    with refused("layers is 0; need at least 1"):
        StackedNet(2, 4, 3, layers=0)
    with refused("readout 'none' is unknown"):
        RecurrentNet(2, 4, 4, readout="none")
    net = StackedNet(2, 4, 3, layers=2, backend="reference")
    params, batch = padded(net)
    with refused("Wxh_l1 has shape .*need .4, 4., because .*and 2 layers"):
        net.forward({**params, "Wxh_l1": params["Wxh_l0"]}, batch.x)
    net = StackedNet(2, 4, 3, bidirectional=True, backend="reference")
    params, batch = padded(net)
    with refused(r"is bidirectional; need one .*every_cell\['_l0'"):
        state_jacobians(net, params, batch.x)
    cell = net.every_cell["_l0"]  # the way out
    head = {"Why": np.zeros((1, 4)), "by": np.zeros(1)}
    assert state_jacobians(cell, {**net.of(params, "_l0"), **head}, batch.x).shape[2:] == (4, 4)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("readout", ["last", "every", "none"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
def test_state_gradients(cell, readout, both):
    """At t = 0 they are the gradients of every h0, which the whole backward pass gives, with
    sequences of several lengths."""
    net = StackedNet(
        2,
        3,
        6 if both else 3,
        cell=cell,
        readout=readout,
        layers=2,
        bidirectional=both,
        loss="squared_error",
        backend="reference",
    )
    params, batch = padded(net)
    whole = loss_and_gradients(net, params, batch).gradients
    flow = state_gradients(net, params, batch)
    starts = np.concatenate(
        [whole[f"h0{suffix}"].reshape(-1, *flow.shape[2:]) for suffix in net.every_cell]
    )
    assert flow.shape[1] == len(starts)
    assert abs(flow[0] - starts).max() <= 1000 * EPS * abs(starts).max()


@pytest.mark.parametrize("cell", CELLS)
def test_state_jacobians(cell):
    """Of a stack: row by row the gradients of h0 for a loss that is one entry of the last state,
    and the product of the steps' own."""
    net = StackedNet(2, 3, 3, cell=cell, layers=2, backend="reference")
    params, batch = padded(net)
    J = state_jacobians(net, params, batch.x)
    factors = step_jacobians(net, params, batch.x)
    for t in range(len(batch.x)):
        assert abs(J[t] - J[t + 1] @ factors[t]).max() <= 1000 * EPS * max(1, abs(J[t]).max())
    parts, top = (2, 6) if cell in ("lstm", "cifg") else (1, 3)
    reading = StackedNet(
        2, 3, 3, cell=cell, layers=2, loss="none", reduction="sum", backend="reference"
    )
    params = {**params, "Why": np.eye(3)}
    outputs = reading.forward(params, batch.x)[0]
    for row in range(3):
        d = np.zeros_like(outputs)
        d[:, row] = 1
        grads = reading.backward(params, reading.forward(params, batch.x)[1], d)
        computed = np.concatenate(
            [
                np.moveaxis(grads[f"h0{suffix}"].reshape(parts, -1, 3), 0, 1).reshape(-1, parts * 3)
                for suffix in net.every_cell
            ],
            axis=1,
        )
        assert abs(J[0, :, top + row] - computed).max() <= 1000 * EPS * max(1, abs(computed).max())
