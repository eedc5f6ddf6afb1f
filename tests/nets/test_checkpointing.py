"""Checkpoints change what is held in memory and nothing else: the same gradients as without,
exactly on fractions, and peaks that grow with the square root of the sequence length."""

import tracemalloc
from dataclasses import replace
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from refnet.batch import Batch
from refnet.cells import CELLS
from refnet.compiled.layout import forget
from refnet.maths.activations import ACTIVATIONS
from refnet.nets import layer as checkpointing
from refnet.nets.gradients import hvp, jvp, loss_and_gradients, per_example_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_jacobians
from refnet.prove.checks import RATIONAL_GATE
from support.arguments import refused
from support.marks import both_backends, both_dtypes
from support.oracles import planted
from support.rational import generic_case
from support.strategies import arrays, drawn_case

GATE = replace(RATIONAL_GATE, name="sigmoid")
SHORT = patch.object(checkpointing, "STRETCH", 1)  # so that a few steps make several segments
SINGLE = patch.object(checkpointing, "segments", lambda T: [(t, t + 1) for t in range(T)])


@st.composite
def cases(draw, cell):
    act = ACTIVATIONS[draw(st.sampled_from(["softsign", "identity", "prelu", "relu"]))]
    longest = 5 if cell == "rnn" else 3  # the gates' fractions grow without bound
    T, B, H = draw(st.integers(0, longest)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    net = RecurrentNet(
        1,
        H,
        1,
        cell=cell,
        activation=act,
        readout=draw(st.sampled_from(["last", "every"])),
        loss="squared_error",
        gain=draw(st.sampled_from([1, 2])),
        clip_step=draw(st.sampled_from([None, 1])),
        gate=GATE,
        backend="reference",
    )
    case = drawn_case(draw, net, T, B)
    for name in draw(st.sampled_from([(), CELLS[cell].OPTIONAL])):
        case.params[name] = draw(arrays(H, True))
    return case[:3]


def agrees(net, params, batch, whole=None):
    """Whether checkpoints change no loss, output or gradient, and only x's can be left out.
    ``whole``: what the net gives without checkpoints, if it was computed before."""
    whole = whole or loss_and_gradients(net, params, batch)
    parts = loss_and_gradients(replace(net, checkpoint="sqrt"), params, batch)
    without = loss_and_gradients(replace(net, checkpoint="sqrt"), params, batch, inputs=False)
    return (
        whole.loss == parts.loss
        and (whole.outputs == parts.outputs).all()
        and whole.gradients.keys() == parts.gradients.keys()
        and without.gradients.keys() == whole.gradients.keys() - {"x"}
        and all(
            value.shape == whole.gradients[name].shape and (value == whole.gradients[name]).all()
            for computed in (parts, without)
            for name, value in computed.gradients.items()
        )
    )


@pytest.mark.parametrize("cell", CELLS)
@given(data=st.data())
@settings(max_examples=40)
def test_equals_the_net_without_checkpoints(cell, data):
    """Every cell, both read-outs, masks, h0 of every kind, gain, clipping, T from 0 on."""
    with SHORT:
        assert agrees(*data.draw(cases(cell)))


def exact_case(cell, readout):
    """Two segments, of one step and of two; no zeros or ties, so that every bug shows. One of
    the sequences ends before the last step and one is read at h0."""
    H = 2 if cell == "rnn" else 1
    net = RecurrentNet(
        1,
        H,
        1,
        cell,
        activation="softsign",
        readout=readout,
        loss="squared_error",
        gate=GATE,
        backend="reference",
    )
    return generic_case(net, seed=1, B=3, mask=True)[:3]


BUGS = {
    "carry dropped": ("dh[-1:] += carry if carry.ndim == 2 else carry[0][:, :dh.shape[2]]", "pass"),
    "cell carry dropped": ("(dh, carry[1])", "dh"),
    "every segment from h0": ("x[first:end], start, lengths", "x[first:end], starts[0], lengths"),
    "last segment's weights only": ("np.asanyarray(total[name] + value)", "value"),
    "segments of dx in the wrong order": ("dx[::-1]", "dx"),
    "read at h0 forgotten": ("np.where((steps == 0)[:, None], drows, 0)", "0 * drows"),
    "read one step early": (
        "dh[steps[here] - earliest, here]",
        "dh[steps[here] - earliest - 1, here]",
    ),
    "Why of the last segment": ("sum(sums[1:], sums[0])", "sums[0]"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_rejected(bug, monkeypatch):
    readout = "every" if "Why" in bug else "last"
    case = exact_case("lstm" if "cell" in bug else "rnn", readout)
    of_net = any(word in BUGS[bug][0] for word in ("steps", "sums"))
    owner, name = (RecurrentNet, "_pull_cells") if of_net else (checkpointing.Layer, "backward")
    wrong = planted(getattr(owner, name), *BUGS[bug])
    whole = loss_and_gradients(*case)
    computed = []
    for split in (SHORT, SINGLE):  # one segment has two steps; one is run again, and not from h0
        with split, monkeypatch.context() as patched:
            assert agrees(*case)
            patched.setattr(owner, name, wrong)
            computed.append(agrees(*case, whole))
    assert not all(computed)


@pytest.mark.parametrize("cell", CELLS)
def test_a_tape_can_be_pulled_back_twice(cell):
    """Although the first pass takes the last segment's tape away."""
    net, params, batch = exact_case(cell, "every")
    net = replace(net, checkpoint="sqrt")
    with SHORT:
        outputs, tape = net.forward(params, batch.x)
        earlier, two = (net.backward(params, tape, outputs) for _ in range(2))
    assert all((value == two[name]).all() for name, value in earlier.items())


def test_segments():
    for T in (0, 1, 2, 15, 16, 17, 1000, 100_000):
        parts = checkpointing.segments(T)
        assert [step for first, end in parts for step in range(first, end)] == list(range(T))
        longest = max(end - first for first, end in parts)
        assert longest <= 10 * (T**0.5 + 1) and len(parts) <= T**0.5 / 10 + 1


def unit_case(cell, readout, dtype, T=2000, B=5, H=6):
    """Wxh and Why are identities, so that dx is the pre-activations' gradient da and the read-out
    rounds nothing."""
    rng = np.random.default_rng(2)
    net = RecurrentNet(
        1, H, H, cell=cell, readout=readout, loss="squared_error", backend="compiled"
    )
    G = len(net.gates)
    net = replace(net, inputs=G * H)
    params = net.init(rng, dtype)
    params |= {"Wxh": np.eye(G * H, dtype=dtype), "Why": np.eye(H, dtype=dtype)}
    steps = (T, B, H) if readout == "every" else (B, H)
    x, y = (rng.normal(size=shape).astype(dtype) for shape in ((T, B, G * H), steps))
    mask = np.arange(T)[:, None] < np.array([T, T // 2, 1, 0, 70])
    return net, params, Batch(x, y, mask)


@both_dtypes
@pytest.mark.parametrize("readout", ["last", "every"])
@pytest.mark.parametrize("cell", CELLS)
def test_compiled_differs_in_the_order_of_sums_alone(cell, readout, dtype):
    """Every state and its gradient has the same bits. A weight's gradient is the sum of T B
    products in another order: each order rounds at most 2 T B times, the segments' and the
    blocks' own additions included, by half an eps of the sum of the products' sizes."""
    net, params, batch = unit_case(cell, readout, dtype)
    T, B = batch.mask.shape
    whole = loss_and_gradients(net, params, batch)
    parts = loss_and_gradients(replace(net, checkpoint="sqrt"), params, batch)
    assert len(checkpointing.segments(T)) > 2
    assert whole.outputs.tobytes() == parts.outputs.tobytes() and whole.loss == parts.loss
    da, h = (
        abs(whole.gradients["x"]).reshape(T * B, -1),
        abs(net.forward(params, batch.x)[1].cell.h),
    )
    seen, last = h[:-1].reshape(T * B, -1), 2 * abs(whole.outputs - batch.y)
    sizes = {
        "Whh": da.T @ seen,
        "Wxh": da.T @ abs(batch.x).reshape(T * B, -1),
        "bh": da.sum(axis=0),
        "bhn": da[:, -net.hidden :].sum(axis=0),
        "Why": last.reshape(-1, net.hidden).T @ h[1:].reshape(T * B, -1)
        if readout == "every"
        else 0,
    }
    for name, value in whole.gradients.items():
        assert value.dtype == parts.gradients[name].dtype == dtype
        allowed = 2 * T * B * np.finfo(dtype).eps * sizes.get(name, 0)
        assert (abs(value - parts.gradients[name]) <= allowed).all(), name


def peak(net, T):
    """Bytes of a forward and backward pass at their peak, without the inputs and twice the
    outputs (once in segments, once whole)."""
    rng = np.random.default_rng(3)
    params, x = net.init(rng), rng.normal(size=(T, 8, 1)).astype(np.float32)
    outputs, tape = net.forward(params, x[:1])
    net.backward(params, tape, np.ones_like(outputs), inputs=False)  # kernels are loaded here
    doutputs = np.ones((T,) * (net.readout == "every") + outputs.shape[-2:], np.float32)
    forget()
    tracemalloc.start()
    try:
        net.backward(params, net.forward(params, x, copy=False)[1], doutputs, inputs=False)
        return tracemalloc.get_traced_memory()[1] - 2 * doutputs.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("readout", ["last", "every"])
@pytest.mark.parametrize("cell", CELLS)
def test_memory_grows_with_the_square_root(cell, readout):
    """Four times the steps take twice the memory (a fifth more is allowed for what does not
    depend on T), and less than a tenth of the tape without checkpoints."""
    net = RecurrentNet(1, 32, 1, cell=cell, readout=readout, backend="compiled")
    N = 6_400
    parts = replace(net, checkpoint="sqrt")
    of_parts, of_whole = peak(parts, 4 * N), peak(net, 4 * N)
    assert of_parts < 2.2 * peak(parts, N)
    assert 10 * of_parts < of_whole
    assert of_whole > 3.5 * peak(net, N)


def test_every_other_derivative():
    def derivatives(net, params, batch):
        yield from hvp(net, params, batch, params).values()
        yield from jvp(net, params, batch, params)
        for share in per_example_gradients(net, params, batch):
            yield share.gradients["Whh"]
        yield state_jacobians(net, params, batch.x)

    for readout in ("last", "every"):
        net, params, batch = exact_case("rnn", readout)
        with SHORT:
            for whole, parts in zip(
                derivatives(net, params, batch),
                derivatives(replace(net, checkpoint="sqrt"), params, batch),
                strict=True,
            ):
                assert np.all(whole == parts)


def test_certified_with_its_states():
    pytest.importorskip("flint")
    from refnet.exact import certify

    net, params, batch = exact_case("rnn", "last")
    net = RecurrentNet(
        1, 2, 1, activation=net.activation, loss="squared_error", backend="reference"
    )
    with SHORT:
        computed = certify(replace(net, checkpoint="sqrt"), params, batch).named()
    wanted = certify(net, params, batch).named()
    assert "h" in computed and computed.keys() == wanted.keys()
    assert all((value.exact == computed[name].exact).all() for name, value in wanted.items())


def test_the_tape_says_that_it_has_no_states():
    net, params, batch = exact_case("rnn", "last")
    tape = replace(net, checkpoint="sqrt").forward(params, batch.x)[1]
    with refused("keeps no states", AttributeError):
        tape.cell.h


@both_backends
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("act", ["tanh", "softsign", "prelu"])
def test_a_net_that_only_runs_forward(cell, act, backend):
    """Its outputs have the bits of a net with a tape; it refuses to go back."""
    rng = np.random.default_rng(0)
    x, mask = rng.standard_normal((11, 13, 3)).astype(np.float32), np.ones((11, 13), bool)
    mask[7:, 3] = False
    nets = [
        RecurrentNet(3, 9, 4, cell, activation=act, readout=readout, backend=backend)
        for readout in ("last", "every")
    ]
    nets.append(
        StackedNet(3, 9, 4, cell, activation=act, backend=backend, layers=2, bidirectional=True)
    )
    for net in nets:
        params = net.init(rng)
        for seen in (None, mask):
            forward = replace(net, checkpoint="forward")
            want, (got, tape) = net.forward(params, x, seen)[0], forward.forward(params, x, seen)
            assert want.tobytes() == got.tobytes()
            with refused("keeps no tape; run forward and backward of"):
                forward.backward(params, tape, got)


@pytest.mark.parametrize(
    "cell, readout, most",
    [
        *((cell, "last", 0.25) for cell in CELLS),
        *((cell, "every", 2) for cell in ("lstm", "gru", "gru_before", "cifg")),
    ],
)
def test_memory_of_a_net_that_only_runs_forward(cell, readout, most):
    """The states, (T, B, H), and not much more, where all are read; a tape has four times as many
    numbers or more. Where the last is read, next to nothing."""
    net = RecurrentNet(1, 32, 2, cell, readout=readout, backend="compiled", checkpoint="forward")
    params, x = net.init(np.random.default_rng(0)), np.zeros((2000, 8, 1), np.float32)
    for each in (replace(net, checkpoint="none"), net):
        each.forward(params, x)  # compiles
        forget()
        tracemalloc.start()
        result = each.forward(params, x)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (used < most * 4 * 2000 * 8 * 32) == (each is net), result[0].shape
