"""Mistakes outside the cells: as the reference, transposed, differentiated, and named."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from refnet.check import judge
from refnet.check.conventions import Readings
from refnet.check.noise import spread
from refnet.check.programs.counts import counts
from refnet.check.programs.edges import Edges
from refnet.check.programs.fits import edges_with_a_constant, scores_with_a_constant
from refnet.check.programs.layers import Change, Layers
from refnet.check.programs.losses import added, gradient
from refnet.check.programs.moves import moves
from refnet.check.programs.scores import Scores
from refnet.check.search import Search
from refnet.exact import certify
from refnet.exact.enclose import run_on
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from support.byhand import read, two_layers
from support.drawn import drawn

NETS = {
    "last": RecurrentNet(2, 4, 3, "lstm"),
    "every": RecurrentNet(2, 4, 3, readout="every"),
    "error": RecurrentNet(2, 3, 2, "gru", readout="every", loss="squared_error"),
    "layers": StackedNet(2, 4, 3, "gru", layers=2),
    "both": StackedNet(2, 3, 3, layers=2, bidirectional=True, readout="every"),
}


def results(net, params, batch):
    return run_on(net, params, batch, lambda array, _: np.array(array, float))


def transposed(move, T, B):
    """Whether <move(a), b> is <a, back(b)>, of whole numbers."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (2, T, B, 2)).astype(float)
    return np.isclose((move.there(a) * b).sum(), (a * move.back(b)).sum(), 1e-12, 1e-9)


@pytest.mark.parametrize(("T", "first"), [(6, 0), (7, 1), (1, 0)])
def test_moves_have_their_transposes(T, first):
    lengths = np.minimum([6, 2, 4], T - first)
    every = list(moves(lengths, T, first))
    assert all(transposed(move, T, 3) for move in every), [m.name for m in every]
    assert len({move.name for move in every}) == len(every)
    late = next(iter(moves(np.array([6, 6, 6]), 6)))
    assert not transposed(late._replace(back=late.there), 6, 3)  # a planted bug


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("mask", [False, True])
def test_edges_without_a_change_are_the_reference(name, mask):
    params, batch = drawn(NETS[name], 5, 3, float, mask=mask)
    right, ours = (
        results(NETS[name], params, batch),
        Layers(NETS[name], params, batch).run(Change("")),
    )
    assert set(right) == set(ours)
    for result, value in right.items():
        assert abs(ours[result] - value).max() <= 64 * np.finfo(float).eps, result


@pytest.mark.parametrize("name", ["last", "error", "both"])
def test_a_backward_pass_that_follows_is_the_derivative(name):
    """Along a random direction, of every 13th change that is made everywhere."""
    net = NETS[name]
    params, batch = drawn(net, 4, 3, float, mask=True)
    rng = np.random.default_rng(0)
    way = {key: rng.normal(size=value.shape) for key, value in params.items()}
    step, tried = 1e-6, 0
    for n, option in enumerate(Edges(Layers(net, params, batch)).options()):
        if n % 13 or "is its absolute" in option.move.name:
            continue
        here = option.moves
        change, sides = Change("", here, here, here), []
        slope = Layers(net, params, batch).run(change)
        for by in (-step, step):
            shifted = {key: value + by * way[key] for key, value in params.items()}
            sides.append(Layers(net, shifted, batch).run(change)["loss"])
        along = sum((slope[f"d{key}"] * way[key]).sum() for key in params)
        assert abs((sides[1] - sides[0]) / 2 / step - along) < 1e-6 * (1 + abs(along)), option
        tried += 1
    assert tried > 10


@np.errstate(all="ignore")
def test_gradients_of_formulas_are_their_slopes():
    rng = np.random.default_rng(0)
    v, t = rng.normal(size=(5, 3)), np.eye(3)[[0, 2, 1, 1, 0]]
    way, step = rng.normal(size=v.shape), 1e-6
    for name, formula in added():
        ahead, behind = formula(v + step * way, t), formula(v - step * way, t)
        slope = (gradient(formula, v, t) * way).sum(axis=1)
        known = np.isfinite(ahead + behind + slope)
        off = abs((ahead - behind) / 2 / step - slope)
        assert (off <= 1e-5 * (1 + abs(slope)))[known].all(), name


@np.errstate(all="ignore")
@pytest.mark.needs("flint")
def test_constants_are_fitted():
    """Of drawn edges, and of a loss."""
    net = NETS["error"]
    params, batch = drawn(net, 6, 3, float)
    name, right = named(net, params, batch, "constants", "between"), results(net, params, batch)
    layers, scores = Layers(net, params, batch), Scores(net, params, batch)
    edges, k, tried = list(edges_with_a_constant(Edges(layers))), 0.37, 0
    for n in np.random.default_rng(0).choice(len(edges), 4, replace=False):
        option = edges[n][0](k)
        here = option.moves
        said = name(layers.run(Change("", here, here, here)))
        assert f"{k}" in said or said in ("", "right"), said
        tried += f"{k}" in said
    assert tried > 1
    clipped = next(iter(scores_with_a_constant(scores)))[0](k)
    assert f"{k}" in name({**right, **scores.backward(clipped.dv)})


def named(net, params, batch, *kinds):
    """What names results, given as arrays."""
    certified = certify(net, params, batch)
    readings, sigma = Readings(certified, pairs=False), spread(certified, np.float64)

    def name(theirs):
        true = readings.true
        wrong = {n for n in true if (abs(theirs[n] - true[n]) > 12 * sigma[n]).any()}
        search = Search(readings, theirs, wrong, sigma, 2.0**-53)
        ways = (search.best(getattr(search.around, kind)()) for kind in kinds or ("readings",))
        return next(filter(None, ways), "") if wrong else "right"

    return name


@np.errstate(all="ignore")
@pytest.mark.needs("flint")
@pytest.mark.parametrize("name", ["last", "error", "both"])
def test_changes_are_named(name):
    """Drawn ones of all."""
    net = NETS[name]
    params, batch = drawn(net, 6, 3, float, mask=[6, 2, 4])
    layers, scores = Layers(net, params, batch), Scores(net, params, batch)
    name, right, tried = named(net, params, batch), results(net, params, batch), 0
    assert name(right) == "right"
    rng = np.random.default_rng(0)
    options = list(Edges(layers).options())
    theirs = []
    for n in rng.choice(len(options), 3, replace=False):
        here = {options[n].edge: options[n].move}
        theirs += [layers.run(Change("", here, here, here)), layers.run(Change("", here))]
    every, dv = (*scores.candidates(), *counts(scores)), scores.right.dv
    others = [  # a factor alone is named elsewhere
        score for score in every
        if not abs((score.dv * dv).sum()) > 0.999 * np.linalg.norm(score.dv) * np.linalg.norm(dv)
    ]  # fmt: skip
    for n in rng.choice(len(others), 6, replace=False):
        loss = np.asarray(others[n].each.sum())
        theirs.append({**right, "loss": loss, **scores.backward(others[n].dv)})
    for reading in theirs:
        if all(np.isfinite(value).all() for value in reading.values()):
            said = name(reading)
            assert said
            tried += said != "right"
    assert tried > 3


@pytest.mark.parametrize("name", ["last", "layers", "both"])
def test_what_is_handed_on_has_its_derivative(name):
    """States that another cell starts from, or another example; inputs that skip a layer."""
    net = replace(NETS[name], inputs=NETS[name].hidden)
    params, batch = drawn(net, 4, 3, float)
    edges = Edges(Layers(net, params, batch))
    every = [c for c in (*edges.starts(), *edges.skips())
             if "without" not in c.name and "alone" not in c.name]  # fmt: skip
    rng, step = np.random.default_rng(0), 1e-6
    way = {key: rng.normal(size=value.shape) for key, value in params.items()}
    for change in every:
        slope = Layers(net, params, batch).run(change)
        sides = (
            Layers(net, {key: v + by * way[key] for key, v in params.items()}, batch).run(change)
            for by in (step, -step)
        )
        along = sum((slope[f"d{key}"] * way[key]).sum() for key in params)
        above, below = (side["loss"] for side in sides)
        assert abs((above - below) / 2 / step - along) < 1e-6 * (1 + abs(along)), change.name
    assert len(every) >= 3


@pytest.mark.needs("flint")
@pytest.mark.parametrize(
    "bug, said",
    [
        ("started", "the initial state of layer 1 is the last one of layer 0, without a gradient"),
        ("kept", "the backward pass of layer 0 begins with what is left of dh of layer 1"),
        ("exchanged", "the gradients of Whh_l0 and of Whh_l1 change places"),
        (
            "reversed",
            "the input of every layer is reversed in time, though its gradient goes back as usual",
        ),
        ("residual", "the input of layer 1 is added to its output"),
        ("cut", "the gradient is truncated: the state is detached every 3 steps, in every layer"),
        ("between", "the gradient of the output of layer 0 is clipped at 0.004"),
        (
            "bounded",
            "perhaps a_h is clipped at 0.30952, in the forward pass alone, or the argument of "
            "h[t+1] is clipped at 0.30952, in the forward pass alone, in every layer",
        ),
        ("clipped", "the gradient that is carried through Whh is clipped at 0.003, in every layer"),
        ("units", "dx takes Wxh with its columns reversed, in every layer"),
    ],
)
def test_layers_by_hand_are_named(bug, said):
    net = StackedNet(2, 4, 3, layers=2, readout="every")
    params, batch = drawn(net, 7, 3, float)
    assert judge(net, two_layers, params, batch).passed
    assert judge(net, partial(two_layers, bug=bug), params, batch).convention == said


@pytest.mark.needs("flint")
@pytest.mark.parametrize(
    "names, said",
    [
        (["Whh"], "Whh_l0 is used for Whh_l1"),
        (["Whh", "bh"], "Whh_l0 and bh_l0 are used for Whh_l1 and bh_l1"),
    ],
)
def test_parameters_of_another_layer_are_named(names, said):
    net = StackedNet(2, 4, 3, layers=2, readout="every")
    params, batch = drawn(net, 7, 3, float)
    theirs = two_layers({**params, **{f"{n}_l1": params[f"{n}_l0"] for n in names}}, batch)
    assert judge(net, theirs, params, batch).convention == said


@pytest.mark.needs("flint")
@pytest.mark.parametrize("usual", [0, 1])
def test_a_layer_whose_input_is_read_out_is_named(usual):
    """Of a read-out at the last step; backward, too, or not."""
    net = NETS["layers"]
    params, batch = drawn(net, 6, 3, float)
    name = named(net, params, batch)
    for follows in (True, False):
        change = Change("", skips={2: usual}, follows=follows)
        how = "is added to its output" if usual else "stands for its output"
        alone = "" if follows else ", in the forward pass alone"
        said = name(Layers(net, params, batch).run(change))
        assert said == f"the input of layer 1 {how}{alone}"


EXAMPLES = """
def gradients(p, x, y):
    T, B, _ = x.shape
    h, dx = np.zeros((T + 1, *x.shape[1:2], len(p["bh"]))), np.zeros_like(x)
    dW, dV, db = 0 * p["Whh"], 0 * p["Wxh"], 0 * p["bh"]
    start = np.zeros(len(p["bh"]))
    for b in range(B):
        h[0, b] = start
        for t in range(T):
            h[t + 1, b] = np.tanh(p["Wxh"] @ x[t, b] + p["Whh"] @ h[t, b] + p["bh"])
    loss, v, dv = read(p, h[T], y)
    rows = dv @ p["Why"]
    dh = np.zeros(len(p["bh"]))
    for b in range(B):
        dh = rows[b]
        for t in reversed(range(T)):
            da = dh * (1 - h[t + 1, b] ** 2)
            dW, dV, db = dW + np.outer(da, h[t, b]), dV + np.outer(da, x[t, b]), db + da
            dx[t, b], dh = p["Wxh"].T @ da, p["Whh"].T @ da
    return {"loss": loss, "outputs": v, "dWhy": dv.T @ h[T], "dby": dv.sum(axis=0), "dx": dx,
            "dWhh": dW, "dWxh": dV, "dbh": db}
"""
"""A tanh net, one example after the other."""


@pytest.mark.needs("flint")
@pytest.mark.parametrize(
    "old, new, said",
    [
        ("", "", ""),
        (
            "dh = rows[b]",
            "dh = dh + rows[b]",
            "the backward pass of each example begins with what is left of dh of the example "
            "before",
        ),
        (
            "h[0, b] = start",
            "h[0, b] = start if b == 0 else h[T, b - 1]",
            "the initial state of each example is the last one of the example before, without a "
            "gradient",
        ),
    ],
)
def test_what_is_kept_between_examples_is_named(old, new, said):
    names = {"np": np, "read": read}
    exec(EXAMPLES.replace(old, new) if old else EXAMPLES, names)
    net = RecurrentNet(2, 4, 3)
    params, batch = drawn(net, 5, 3, float)
    assert judge(net, names["gradients"], params, batch).convention == said
