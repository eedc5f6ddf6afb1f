"""What stands behind the end of a sequence, and in targets that are masked, counts for nothing:
every derivative with garbage there is, bit by bit, the one with zeros there."""

from dataclasses import replace
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from refnet.batch import Batch, last_steps
from refnet.cells import CELLS
from refnet.compiled import lstm, rnn, walk
from refnet.compiled.layout import cut_up, deal
from refnet.compiled.tiles import ROWS
from refnet.compiled.walk import KEEPS
from refnet.maths.activations import ACTIVATIONS
from refnet.nets import layer, padding, recurrent
from refnet.nets.gradients import hvp, jvp, loss_and_gradients, per_example_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients
from support.arguments import refused
from support.compiled import at_every_number_of_threads
from support.drawn import padded
from support.marks import both_backends
from support.padding import GARBAGE, littered


def make(net, seed=0, T=7, B=4, dtype=np.float32, gaps=True):
    """Parameters and a batch whose sequences have T, 3, 1 and no steps; some masked within."""
    params, batch = padded(net, T, B, dtype, seed)
    if gaps:
        batch.mask[0, :2] = False
    return params, batch


def every_derivative(net, params, batch, v, exotic):
    with np.errstate(all="ignore"):
        result = loss_and_gradients(net, params, batch)
        derivatives = {"loss": result.loss, **result.gradients}
        if exotic:
            derivatives["slope"] = jvp(net, params, batch, v)[1]
            derivatives |= {
                f"hvp {name}": value for name, value in hvp(net, params, batch, v).items()
            }
            derivatives["states"] = state_gradients(net, params, batch)
            for b, share in enumerate(per_example_gradients(net, params, batch)):
                derivatives |= {f"{b} {name}": value for name, value in share.gradients.items()}
    return derivatives


def leaks(net, garbage=GARBAGE, seed=0, exotic=True, **shape):
    """The names of derivatives that garbage changes, or that are not finite."""
    rng = np.random.default_rng(seed)
    params, batch = make(net, seed, **shape)
    dirty, clean = littered(batch, net, garbage, rng)
    v = {
        name: rng.choice([-1.0, 1.0], value.shape)
        for name, value in {**params, "x": batch.x}.items()
    }
    want = every_derivative(net, params, clean, v, exotic)
    got = every_derivative(net, params, dirty, v, exotic)
    after = np.arange(len(batch.x))[:, None] >= last_steps(batch.mask)
    assert (want["x"][after] == 0).all()
    return [
        name
        for name, value in want.items()
        if not (np.isfinite(value).all() and np.array_equal(value, got[name]))
    ]


NETS = st.builds(
    RecurrentNet,
    inputs=st.just(2),
    hidden=st.just(4),
    outputs=st.just(3),
    cell=st.sampled_from(sorted(CELLS)),
    activation=st.sampled_from(list(ACTIVATIONS.values())),
    readout=st.sampled_from(["last", "every"]),
    loss=st.sampled_from(["cross_entropy", "squared_error"]),
    reduction=st.sampled_from(["mean", "sum", "batch_mean"]),
    backend=st.sampled_from(["reference", "compiled"]),
    checkpoint=st.sampled_from(["none", "sqrt"]),
    clip_step=st.sampled_from([None, 0.1]),
)


@given(
    NETS, st.sampled_from([GARBAGE, GARBAGE[:1], GARBAGE[1:2], GARBAGE[3:4]]), st.integers(0, 99)
)
@settings(max_examples=60)
def test_garbage_does_not_count(net, garbage, seed):
    assert leaks(net, garbage, seed) == []


@pytest.mark.parametrize("readout", ["last", "every"])
@both_backends
@pytest.mark.parametrize("cell", sorted(CELLS))
def test_garbage_over_several_segments(cell, backend, readout, monkeypatch):
    """With checkpoints: sequences that end before, within and at the edge of a segment."""
    monkeypatch.setattr(layer, "STRETCH", 1)
    net = RecurrentNet(2, 4, 3, cell, readout=readout, backend=backend, checkpoint="sqrt")
    assert len(layer.segments(7)) > 2
    assert leaks(net, exotic=False) == []
    assert leaks(replace(net, activation="relu"), exotic=False) == []


@pytest.mark.parametrize("readout", ["last", "every", "none"])
@both_backends
@pytest.mark.parametrize("cell, act", [("rnn", "tanh"), ("rnn", "identity"), ("lstm", "tanh")])
def test_garbage_does_not_count_in_a_stack(cell, act, backend, readout):
    net = StackedNet(
        2, 4, 8, cell, act, readout=readout, layers=2, bidirectional=True, backend="reference"
    )
    net = replace(net, loss="none", reduction="sum", backend=backend)
    assert leaks(net, exotic=False, gaps=False) == []


@both_backends
def test_states_that_overflow_after_the_end_do_not_count(backend):
    """The states grow by 8 at every step, from the end of a short sequence into infinity."""
    net = RecurrentNet(1, 2, 2, activation="identity", backend=backend)
    params, batch = make(net, T=160, B=4)
    params["Whh"] = 8 * np.eye(2, dtype=np.float32)
    mask = np.arange(160)[:, None] < np.array([5, 3, 1, 0])
    with np.errstate(all="ignore"):
        long = loss_and_gradients(net, params, Batch(batch.x, batch.y, mask)).gradients
        _, tape = net.forward(params, batch.x, mask)
    short = loss_and_gradients(net, params, Batch(batch.x[:5], batch.y, mask[:5])).gradients
    assert backend == "compiled" or not np.isfinite(tape.cell.h).all()
    for name, value in short.items():
        got = long[name][:5] if name == "x" else long[name]
        # the product of 160 instead of 5 steps adds up its terms in another order
        assert abs(got - value).max() <= 20 * np.finfo(np.float32).eps * abs(value).max(), name


LAYERED = [
    RecurrentNet(3, 10, 4, cell, readout=readout, checkpoint=checkpoint, clip_step=1e-4)
    for cell in CELLS
    for readout, checkpoint in (("last", "sqrt"), ("every", "none"))
] + [
    StackedNet(3, 10, 4, cell, readout=readout, layers=2, bidirectional=True, learn_h0=True)
    for cell, readout in (("rnn", "every"), ("lstm", "last"), ("gru", "every"))
]


def by_backend_and_threads(net, B=37):
    """The results of the reference, and of the compiled core with 1, 2 and 3 threads."""
    T = 150 if net.checkpoint == "sqrt" else 40  # several segments, or one
    params, batch = make(net, T=T, dtype=np.float64)
    rng = np.random.default_rng(1)
    lengths = rng.permutation([0, 1, T, *rng.integers(0, T, B - 3)])
    every = net.readout == "every"
    y = rng.integers(0, net.outputs, (T, B) if every else B)
    x = rng.standard_normal((T, B, net.inputs))
    if not net.learn_h0:
        params["h0"] = rng.standard_normal((*(2,) * (CELLS[net.cell].STATES - 1), B, net.hidden))
    batch = Batch(x, y, np.arange(T)[:, None] < lengths)
    reference, compiled = (
        partial(loss_and_gradients, replace(net, backend=backend), params, batch)
        for backend in ("reference", "compiled")
    )
    return batch, [reference(), *at_every_number_of_threads(compiled, 3)]


def compare_backends(net):
    batch, (want, *results) = by_backend_and_threads(net)
    counts = np.arange(len(batch.x))[:, None] < last_steps(batch.mask)
    if net.readout == "every":
        outputs = [np.where(counts[:, :, None], r.outputs, 0) for r in (want, results[0])]
    else:
        outputs = [want.outputs, results[0].outputs]
    pairs = [outputs, (want.loss, results[0].loss)]
    pairs += [(value, results[0].gradients[name]) for name, value in want.gradients.items()]
    eps = np.finfo(np.float64).eps
    for value, got in pairs:
        assert abs(value - got).max() <= 1000 * eps * max(abs(value).max(), 1e-3)
    for other in results[1:]:
        for name, value in results[0].gradients.items():
            assert np.array_equal(other.gradients[name], value), name


@pytest.mark.parametrize("net", LAYERED, ids=lambda net: f"{type(net).__name__}-{net.cell}")
def test_different_lengths_compiled_match_the_reference(net):
    """And have the same bits with any number of threads."""
    compare_backends(net)


@pytest.mark.parametrize("bug", ["segment", "unsorted gradient", "order of h0"])
def test_planted_bugs_of_lengths_are_rejected(bug, monkeypatch):
    net = LAYERED[0]
    if bug == "segment":
        monkeypatch.setattr(
            layer, "_after", lambda first, n: None if n is None else n - first - (first > 0)
        )
    elif bug == "unsorted gradient":
        pull = RecurrentNet.backward

        def unsorted(net, params, tape, *arguments, **options):
            order = tape.order is not None and np.roll(tape.order, 1)
            tape = tape if tape.order is None else tape._replace(order=order)
            return pull(net, params, tape, *arguments, **options)

        monkeypatch.setattr(RecurrentNet, "backward", unsorted)
    else:
        start = RecurrentNet.initial_state
        monkeypatch.setattr(
            RecurrentNet,
            "initial_state",
            lambda *a: np.roll(start(*a), 1, axis=-2) if a[0].backend == "compiled" else start(*a),
        )
    with pytest.raises(AssertionError):
        compare_backends(net)


def test_no_compiled_step_follows_the_end_of_a_sequence():
    """With a read-out at every step, whose outputs there are those of the reference, all steps are
    computed."""
    net = RecurrentNet(2, 4, 3, "lstm", backend="compiled")
    params, batch = make(net)
    x = np.where((np.arange(7)[:, None] < last_steps(batch.mask))[:, :, None], batch.x, np.nan)
    every = replace(net, readout="every")
    assert every.forward(params, x, batch.mask)[1].order is None
    assert np.isfinite(net.forward(params, x, batch.mask)[0]).all()


@pytest.mark.parametrize("keeps", KEEPS)
@pytest.mark.parametrize("name", ["rnn", "lstm"])
def test_no_state_after_an_end_is_written(name, keeps, monkeypatch):
    net = RecurrentNet(2, 4, 3, name, backend="compiled")
    params, x = net.init(np.random.default_rng(0)), np.ones((5, 3, 2), np.float32)
    h0, lengths = net.initial_state(params, x), np.array([4, 2, 0])
    forward = {"rnn": rnn, "lstm": lstm}[name].forward
    monkeypatch.setattr(walk, "lend", lambda shape, dtype: np.full(shape, np.nan, dtype))
    tape = forward(params, x, h0, ACTIVATIONS["tanh"], keeps=keeps, lengths=lengths)
    for states in [tape.h] if name == "rnn" else [tape.h, tape.c]:
        steps = np.arange(len(states) - 1)[:, None]
        ended = steps >= (lengths if len(states) == 6 else np.minimum(lengths, 1))
        assert (np.isnan(states[1:]).all(axis=2) == ended).all()
        assert (np.isnan(states[1:]).any(axis=2) == ended).all()


def test_an_order_that_is_not_dealt_is_refused():
    params = RecurrentNet(1, 2, 2).init(np.random.default_rng(0))
    arrays = params, np.zeros((3, 4, 1), np.float32), np.zeros((4, 2), np.float32)
    for lengths in ([1, 2, 3, 3], [3, 2, 1]):
        with refused("not rising within"):
            rnn.forward(*arrays, ACTIVATIONS["tanh"], lengths=np.array(lengths))
    assert rnn.forward(*arrays, ACTIVATIONS["tanh"], lengths=np.array([2, 1, 3, 3])).h.shape == (
        4,
        4,
        2,
    )


def test_two_threads_get_like_shares_of_the_steps():
    for B in (1, 5, 50, 64, 1000):
        lengths = 100 + np.random.default_rng(B).exponential(200, B).astype(int)
        order = deal(lengths, np.dtype("f4"), 256, 64)
        starts = cut_up(np.dtype("f4"), 1, B, 1, 256, 64).starts
        assert sorted(order) == list(range(B))
        parts = np.split(lengths[order], starts[1:-1])
        assert all((np.diff(part) <= 0).all() for part in parts)
        halves = np.add.reduceat([part.sum() for part in parts], [0, len(parts) // 2])
        assert B == 1 or abs(np.diff(halves)) <= ROWS[0] * lengths.max() / 2


def test_within_a_sequence_the_states_run_through_masked_steps():
    net = RecurrentNet(2, 4, 3, readout="every", backend="reference")
    params, batch = make(net, gaps=False)
    mask = batch.mask.copy()
    mask[1, 0] = False
    gap = Batch(batch.x, batch.y, mask)
    assert loss_and_gradients(net, params, gap).gradients["x"][1, 0].all()
    gap.x[1, 0] = np.nan
    with np.errstate(all="ignore"):
        assert np.isnan(loss_and_gradients(net, params, gap).loss)


def test_outputs_in_the_padding_are_those_of_its_x():
    net = RecurrentNet(2, 4, 3, readout="every", backend="reference")
    params, batch = make(net)
    outputs, _ = net.forward(params, batch.x, batch.mask)
    assert np.array_equal(outputs, net.forward(params, batch.x)[0])
    with_nan, with_zero = batch.x.copy(), batch.x.copy()
    with_nan[5, 1, 0], with_zero[5, 1, 0] = np.nan, 0
    first, second = (net.forward(params, x, batch.mask)[0] for x in (with_nan, with_zero))
    assert np.array_equal(first, second)
    assert np.isnan(with_nan[5, 1, 0])  # what was passed stays as it is


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
@pytest.mark.parametrize("readout", ["last", "every"])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_certified(cell, readout, loss):
    pytest.importorskip("flint")
    from refnet.exact import certify

    net = RecurrentNet(2, 2, 3, cell, readout=readout, loss=loss, backend="reference")
    params, batch = make(net, T=4)
    dirty, clean = littered(batch, net, GARBAGE[:3], np.random.default_rng(0))
    got, want = (certify(net, params, each).named() for each in (dirty, clean))
    for name, value in want.items():
        assert np.array_equal(value.value, got[name].value), name


def off_by_one(tape, ended):
    return padding.emptied(tape, ended + 1)


def test_targets_of_the_last_step_are_none_of_the_padding():
    """Where there are as many sequences as steps, and as many outputs."""
    exact = pytest.importorskip("refnet.exact")
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    rng = np.random.default_rng(0)
    mask = np.array([[True, True], [True, False]])
    for readout, y in (
        ("last", np.array([[5, 7], [9, -3]])),
        ("every", rng.integers(3, 9, (2, 2, 2))),
    ):
        net = RecurrentNet(1, 2, 2, loss="squared_error", readout=readout, backend="reference")
        params, x = net.init(rng, np.float64), rng.normal(size=(2, 2, 1))
        result = loss_and_gradients(net, params, Batch(x, y, mask))
        certified = exact.certify(net, params, Batch(x, y, mask))
        assert abs(certified.loss.value - result.loss) <= 1e-12 * result.loss


@pytest.mark.parametrize("bug", ["never again", "one step late", "NaN within x"])
def test_planted_bugs_are_rejected(bug, monkeypatch):
    nets = [
        RecurrentNet(
            2,
            4,
            3,
            "lstm",
            readout=readout,
            activation="relu",
            checkpoint=checkpoint,
            backend="reference",
        )
        for readout in ("last", "every")
        for checkpoint in ("none", "sqrt")
    ]
    if bug == "NaN within x":
        monkeypatch.setattr(recurrent, "finite_input", lambda x, mask: x)
        monkeypatch.setattr(recurrent, "has_nan", lambda gradients: False)
    elif bug == "never again":
        monkeypatch.setattr(recurrent, "has_nan", lambda gradients: False)
    else:
        monkeypatch.setattr(layer, "emptied", off_by_one)
    for net in nets:
        assert leaks(net, GARBAGE[:1] if bug == "NaN within x" else GARBAGE[3:4], exotic=False)
