"""refnet's nets as functions of JAX, under its transformations."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from refnet.check.adapters import jax_nets
from refnet.check.verdict import compare
from refnet.exact import certify
from refnet.interop import jax_functions
from refnet.interop.jax_functions import function
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from support.drawn import drawn
from support.oracles import planted

pytestmark = pytest.mark.needs("jax", "flint")

SUM = {"loss": "none", "reduction": "sum"}
NET = StackedNet(2, 4, 3, cell="lstm", readout="every", **SUM)
NETS = {
    "last": RecurrentNet(2, 4, 3),
    "every": RecurrentNet(2, 4, 3, cell="gru", readout="every", learn_h0=True),
    "states of a stack": StackedNet(
        2,
        3,
        6,
        cell="cifg",
        layers=2,
        bidirectional=True,
        readout="none",
        loss="none",
        reduction="sum",
    ),
    "transition": RecurrentNet(2, 4, 3, transition="schur", activation="prelu"),
    "feedforward": FeedforwardNet((2, 4, 3)),
}


def scored(net, outputs, y):
    if net.loss == "none":
        return (outputs * y).sum()
    logs = jax.nn.log_softmax(outputs)
    return -jax.numpy.take_along_axis(logs, y[..., None], axis=-1).mean()


@pytest.mark.parametrize("name", NETS)
def test_judged(name):
    dtype = np.float64 if name == "every" else np.float32
    net = NETS[name]
    params, batch = drawn(net, dtype=dtype)
    f = function(net)

    def loss(p, x, y):
        return scored(net, f(p, x), y)

    certified = certify(net, params, batch)
    for jit in (False, True):
        assert compare(jax_nets.gradients(loss, params, batch, jit), certified).passed


def test_judged_with_a_mask():
    params, batch = drawn(NETS["last"], mask=True)

    def loss(p, x, y, mask):
        return scored(NETS["last"], function(NETS["last"])(p, x, mask), y)

    theirs = jax_nets.gradients(loss, params, batch)
    assert compare(theirs, certify(NETS["last"], params, batch)).passed


def test_symbols():
    """They have no gradient; the embedding has."""
    net = RecurrentNet(5, 4, 3, embedding=2)
    params = net.init(np.random.default_rng(0))
    symbols = np.random.default_rng(1).integers(0, 5, (6, 3))
    f, onehot = function(net), np.eye(5, dtype=np.float32)[symbols]
    ours, theirs = (jax.jit(jax.grad(lambda p: f(p, x).sum()))(params) for x in (symbols, onehot))
    assert abs(theirs["Wxh.E"]).max() > 0
    close(ours, theirs)
    assert jax.vmap(f, (None, 0))(params, symbols.T).shape == (3, 3)


def close(a, b, roundings=200):
    """Equal trees of arrays up to so many roundings of the largest entry."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        x, y = np.asarray(x), np.asarray(y)
        assert abs(x - y).max() <= roundings * np.finfo(y.dtype).eps * abs(y).max()


@pytest.fixture
def passes(monkeypatch):
    """Counts the forward and the backward passes."""
    counts = {"forward": 0, "backward": 0}

    def counting(name, run):
        def counted(*given, **how):
            counts[name] += 1
            return run(*given, **how)

        return counted

    for name in counts:
        monkeypatch.setattr(RecurrentNet, name, counting(name, getattr(RecurrentNet, name)))
    return counts


def lanes(N=3):
    """Parameters and N batches."""
    draws = [drawn(NET, dtype=np.float64, seed=n) for n in range(N)]
    return draws[0][0], np.stack([batch.x for _, batch in draws])


def of_all(params, xs):
    return (jax.vmap(function(NET), (None, 0))(params, xs) ** 2).sum()


def of_each(params, xs):
    return sum((function(NET)(params, x) ** 2).sum() for x in xs)


@pytest.mark.parametrize("jit", [False, True])
def test_lanes_are_a_batch(jit, passes):
    params, xs = lanes()
    with jax.enable_x64(True):
        wrap = jax.jit if jit else lambda function: function
        grads = jax.block_until_ready(wrap(jax.grad(of_all, argnums=(0, 1)))(params, xs))
        assert passes == {"forward": 1, "backward": 1}
        close(grads, jax.grad(of_each, argnums=(0, 1))(params, xs))
        single = jax.vmap(function(NET), (None, 1), 1)(params, xs[0])
        close(single, function(NET)(params, xs[0]))


def test_a_planted_bug_in_the_order_of_lanes():
    params, xs = lanes(2)
    f, rules = function(NET), jax_functions.batching.primitive_batchers
    right = jax_functions._in_one_batch
    rules[jax_functions.forward_p] = planted(
        right, "moveaxis(array, dim, axis)", "moveaxis(array, dim, axis)[:, ::-1]"
    )
    try:
        lanes_of_bug = jax.vmap(f, (None, 0))(params, xs)
    finally:
        rules[jax_functions.forward_p] = right
    with pytest.raises(AssertionError):
        close(lanes_of_bug, np.stack([f(params, x) for x in xs]))


def test_the_gradients_of_every_lane():
    params, xs = lanes()
    with jax.enable_x64(True):
        grad = jax.grad(lambda p, x: (function(NET)(p, x) ** 2).sum())
        shared = jax.jit(jax.vmap(grad, (None, 0)))(params, xs)
        several = jax.tree.map(lambda value: np.stack([value] * len(xs)), params)
        alone = [grad(params, x) for x in xs]
        stacked = jax.tree.map(lambda *each: np.stack(each), *alone)
        close(shared, stacked)
        close(jax.vmap(grad)(several, xs), stacked)
        by = jax.jacrev(lambda by: function(NET)({**params, "by": by}, xs[0]).sum((0, 1)))
        close(by(params["by"]), 21.0 * np.eye(3))


@pytest.mark.parametrize("single", [False, True])
def test_a_scan_over_pieces_is_the_whole(single, passes):
    """The states go from piece to piece, and so does the gradient; of one sequence likewise, whose
    states differ between lanes."""
    params, batch = drawn(NET, T=6, dtype=np.float64)
    step, whole = function(NET, final=True), function(NET)

    def by_pieces(p, x):
        def body(state, piece):
            outputs, state = step({**p, **state}, piece)
            return state, outputs

        start = {"h0_l0": np.zeros((2, *x.shape[1:-1], 4))}
        _, outputs = jax.lax.scan(body, start, x.reshape(3, 2, *x.shape[1:]))
        return outputs.reshape(6, *outputs.shape[2:])

    def loss(f):
        f = jax.vmap(f, (None, 1), 1) if single else f
        return jax.jit(jax.value_and_grad(lambda p, x: (f(p, x) ** 2).sum(), argnums=(0, 1)))

    with jax.enable_x64(True):
        pieces = jax.block_until_ready(loss(by_pieces)(params, batch.x))
        assert passes == {"forward": 3, "backward": 3}
        close(pieces, loss(whole)(params, batch.x))
        close(pieces, loss(jax.checkpoint(by_pieces))(params, batch.x))


def test_few_tapes_wait(passes):
    """A pullback whose tape is gone, or has been used, runs forward again."""
    params, batch = drawn(NET)
    f = function(NET)
    pullbacks = [jax.vjp(f, params, batch.x)[1] for _ in range(jax_functions.WAITING + 2)]
    assert len(jax_functions._tapes) == jax_functions.WAITING
    before = passes["forward"]
    grads = [pull(batch.y) for pull in pullbacks]
    assert passes["forward"] == before + 2 and not jax_functions._tapes
    for other in [*grads, pullbacks[0](batch.y)]:
        assert all((other[0][name] == grads[0][0][name]).all() for name in params)
    function(NET)(params, batch.x)
    assert not jax_functions._tapes


def test_programs_at_once():
    """Of two threads: the same bits."""
    params, batch = drawn(NET, T=30, B=8)
    step = jax.jit(jax.value_and_grad(lambda p: (function(NET)(p, batch.x) ** 2).sum()))
    alone = jax.tree.leaves(step(params))
    with ThreadPoolExecutor(2) as pool:
        for value in pool.map(lambda _: jax.block_until_ready(step(params)), range(8)):
            assert all((a == b).all() for a, b in zip(jax.tree.leaves(value), alone))


PARAMS, BATCH = drawn(NET)
F = function(NET)
ERRORS = {
    "float16": (lambda: F(PARAMS, BATCH.x.astype("float16")), "float16 and float32; need float32"),
    "a shape": (lambda: F({**PARAMS, "by": PARAMS["by"][:2]}, BATCH.x), r"by has shape \(2,\)"),
    "a parameter": (lambda: F({"by": PARAMS["by"]}, BATCH.x), "missing Whh_l0, Wxh_l0, bh_l0, Why"),
    "x": (lambda: F(PARAMS, BATCH.x[..., :1]), "x has shape"),
    "forward mode": (
        lambda: jax.jvp(lambda x: F(PARAMS, x), [BATCH.x], [BATCH.x]),
        "is diff.* once",
    ),
    "twice": (
        lambda: jax.jit(jax.hessian(lambda x: F(PARAMS, x).sum()))(BATCH.x),
        "is differentiated once, in reverse",
    ),
    "a mask": (
        lambda: function(NET, final=True)(PARAMS, BATCH.x, np.ones((7, 3), bool)),
        "sequences of different lengths",
    ),
    "no states": (lambda: function(NETS["feedforward"], final=True), "final is for a recurrent"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors(error):
    call, message = ERRORS[error]
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=message):
        call()
