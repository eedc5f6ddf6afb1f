"""Symbols as inputs of an embedding: in every derivative the same as one-hot vectors."""

from dataclasses import replace

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.nets import readout
from refnet.nets.gradients import hvp, jvp, loss_and_gradients, per_example_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.nets.states import state_gradients, state_jacobians
from refnet.prove.checks import generic
from support.arguments import refused
from support.drawn import padded
from support.marks import both_dtypes
from support.oracles import dot, planted
from support.rational import generic_case
from support.stacked import rational_net

SYMBOLS = np.array([[3, 1], [0, 3], [3, 3]])


def rational_case(net, mask=True):
    case = generic_case(net, seed=3, mask=mask)
    x = SYMBOLS if case.batch.mask is None else SYMBOLS * case.batch.mask
    return case.params, case.batch._replace(x=x)


def hot(batch, D):
    """The same batch in one-hot vectors."""
    return batch._replace(x=np.eye(D, dtype=int)[batch.x])


def nets():
    single = {"embedding": 3, "gate": rational_net().gate, "loss": "squared_error"}
    for cell in ("rnn", "lstm", "gru"):
        yield RecurrentNet(4, 2, 2, cell=cell, activation="softsign", reduction="sum", **single)
    yield RecurrentNet(
        4, 2, 2, activation="softsign", readout="every", learn_h0=True, gain=2, **single
    )
    yield rational_net("rnn", "every", D=4, embedding=3)
    yield rational_net("lstm", "last", D=4, embedding=3, layers=1)
    yield rational_net("gru", "none", D=4, embedding=3, both=False, layers=1)


@pytest.mark.parametrize("net", list(nets()), ids=lambda net: f"{net.cell}-{net.readout}")
def test_symbols_are_one_hot_vectors_exactly(net):
    """On rationals, in the loss, the outputs, all gradients and the tangents."""
    params, batch = rational_case(net)
    symbols = loss_and_gradients(net, params, batch)
    vectors = loss_and_gradients(net, params, hot(batch, 4))
    assert symbols.loss == vectors.loss and (symbols.outputs == vectors.outputs).all()
    assert set(vectors.gradients) - set(symbols.gradients) == {"x"}
    for name, gradient in symbols.gradients.items():
        assert (gradient == vectors.gradients[name]).all(), name
    rng = np.random.default_rng(5)
    direction = {name: generic(rng, value.shape) for name, value in params.items()}
    pushed = jvp(net, params, batch, direction)[1]
    assert pushed == jvp(net, params, hot(batch, 4), direction)[1]
    assert pushed - dot(symbols.gradients, direction) == 0
    assert (
        state_gradients(net, params, batch) == state_gradients(net, params, hot(batch, 4))
    ).all()


def test_second_derivatives_shares_and_jacobians():
    net = next(nets())
    params, batch = rational_case(net, mask=False)
    direction = {"Wxh.E": generic(np.random.default_rng(2), (3, 4))}
    second, wanted = (hvp(net, params, each, direction) for each in (batch, hot(batch, 4)))
    assert all((second[name] == wanted[name]).all() for name in params)
    shares = per_example_gradients(net, params, batch)
    whole, names = loss_and_gradients(net, params, batch).gradients, params.keys() - {"h0"}
    assert all((sum(s.gradients[name] for s in shares) == whole[name]).all() for name in names)
    jacobians = state_jacobians(net, params, batch.x)
    assert (jacobians == state_jacobians(net, params, np.eye(4, dtype=int)[batch.x])).all()


def test_planted_bugs_are_rejected(monkeypatch):
    """A gradient that a repeated symbol overwrites, or that the next symbol gets."""
    net = next(nets())
    params, batch = rational_case(net)
    wanted = loss_and_gradients(net, params, hot(batch, 4)).gradients["Wxh.E"]
    for old, new in (
        ("np.add.at(total, flat, dx)", "total[flat] = dx"),
        ("flat, dx = symbols.ravel()", "flat, dx = np.roll(symbols, 1).ravel()"),
    ):
        monkeypatch.setattr(readout, "columns", planted(readout.columns, old, new))
        assert (loss_and_gradients(net, params, batch).gradients["Wxh.E"] != wanted).any()
        monkeypatch.undo()


@both_dtypes
@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_the_compiled_core_agrees(cell, dtype):
    """To rounding, masked, with gradient checkpointing too; and garbage in the padding is 0."""
    net = StackedNet(5, 4, 3, cell=cell, embedding=3, layers=2, bidirectional=True)
    params, batch = padded(net, T=130, dtype=dtype)
    batch = batch._replace(x=np.random.default_rng(1).integers(0, 5, batch.x.shape[:2]))
    want = loss_and_gradients(net, params, batch).gradients
    compiled = replace(net, backend="compiled")
    got = loss_and_gradients(compiled, params, batch).gradients
    dirty = batch._replace(x=np.where(batch.mask, batch.x, -7))
    again = loss_and_gradients(replace(compiled, checkpoint="sqrt"), params, dirty).gradients
    bound = 1e3 * np.finfo(dtype).eps  # sums of some hundred terms
    for name, value in want.items():
        size = abs(value).max()
        assert abs(got[name] - value).max() <= bound * size, name
        assert abs(again[name] - value).max() <= bound * size, name
    littered = loss_and_gradients(compiled, params, dirty).gradients
    assert all(littered[name].tobytes() == got[name].tobytes() for name in got)


def test_sums_by_symbol_are_those_of_the_plain_loop():
    """Float32 sums bit by bit, though a library makes them."""
    rng = np.random.default_rng(0)
    symbols, dx = rng.integers(0, 7, (50, 4)), rng.standard_normal((50, 4, 3)).astype(np.float32)
    total = np.zeros((7, 3), np.float32)
    for symbol, row in zip(symbols.ravel(), dx.reshape(-1, 3)):
        total[symbol] += row
    assert readout.columns(symbols, dx, 7).tobytes() == total.T.tobytes()


def test_what_does_not_fit_is_refused():
    net = RecurrentNet(4, 2, 2, embedding=3)
    params = net.init(np.random.default_rng(0))
    with refused("symbols from -1 to 3; need 0 to 3, because the net has"):
        net.forward(params, np.array([[3, -1]]))
    with refused(r"need \(T, B, D\)"):
        net.forward(params, np.ones((3, 2)))
    plain = RecurrentNet(4, 2, 2)
    with refused("or a net with an embedding for symbols"):
        plain.forward(plain.init(np.random.default_rng(0)), SYMBOLS)
    batch = Batch(SYMBOLS, np.array([0, 1]))
    with refused("direction: x is unknown"):
        jvp(net, net.init(np.random.default_rng(0)), batch, {"x": SYMBOLS})
