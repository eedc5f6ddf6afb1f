"""An independent proof of the hand-written backward passes: each equals, with ==, what a recorded
array gives for the same formula written out once more in plain NumPy, on rationals.

The formulas here are the papers' and share no code with refnet's, forward passes included.
"""

from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.exact import certify_function, lift
from refnet.exact.balls import arb, precision
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.losses import LOSSES, counted_predictions, score
from refnet.matrices.orthogonality import open_penalty
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from support.rational import RATIONAL_GATE

pytestmark = pytest.mark.needs("flint")

T, B, D, H, C = 2, 1, 2, 2, 3


def draw(*shape, seed=0):
    """Different rationals other than 0, of either sign."""
    rng = np.random.default_rng([seed, *shape])
    size = int(np.prod(shape))
    values = (rng.permutation(size) + 1) * rng.choice([-1, 1], size)
    return np.array([Fraction(int(v), 8) for v in values], object).reshape(shape)


def softsign(a):
    return a / (1 + np.abs(a))


def gate(a):
    return (1 + softsign(a)) / 2


def swapped(a):
    first, second = a[..., 0::2], a[..., 1::2]
    return np.stack([np.maximum(first, second), np.minimum(first, second)], -1).reshape(a.shape)


def elu(a):
    return np.where(a > 0, a, np.exp(a) - 1)


WRITTEN = {
    "identity": lambda a: a * 1,
    "tanh": np.tanh,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "softsign": softsign,
    "relu": lambda a: np.maximum(a, 0),
    "elu": elu,
    "oplu": swapped,
    "leaky_relu": lambda a: np.maximum(a, 0) + 0.01 * np.minimum(a, 0),
    "prelu": lambda a, slope: np.maximum(a, 0) + slope * np.minimum(a, 0),
    "modrelu": lambda a, b_mod: np.sign(a) * np.maximum(np.abs(a) + b_mod, 0),
}
"""The activations as their papers have them; own parameters by refnet's names."""


def rnn(p, x, h, act):
    states = []
    for t in range(T):
        h = act(p["Wxh"] @ x[t].T + (p["Whh"] @ h.T) + p["bh"][:, None]).T
        states.append(h)
    return states


def lstm(p, x, start, act):
    h, c, states = start[0], start[1], []
    for t in range(T):
        i, f, g, o = np.split(x[t] @ p["Wxh"].T + h @ p["Whh"].T + p["bh"], 4, axis=1)
        c = gate(f + p["Wpf"] * c) * c + gate(i + p["Wpi"] * c) * act(g)
        h = gate(o + p["Wpo"] * c) * act(c)
        states.append(h)
    return states


def gru(p, x, h, act):
    states = []
    for t in range(T):
        r, z, n = np.split(x[t] @ p["Wxh"].T + p["bh"], 3, axis=1)
        u, v, w = np.split(h @ p["Whh"].T, 3, axis=1)
        z = gate(z + v)
        h = z * h + (1 - z) * act(n + gate(r + u) * (w + p["bhn"]))
        states.append(h)
    return states


def gru_before(p, x, h, act):
    states = []
    for t in range(T):
        r, z, n = np.split(x[t] @ p["Wxh"].T + p["bh"], 3, axis=1)
        Ur, Uz, Un = np.split(p["Whh"], 3, axis=0)
        z = gate(z + h @ Uz.T)
        h = z * h + (1 - z) * act(n + (gate(r + h @ Ur.T) * h) @ Un.T)
        states.append(h)
    return states


CELLS = {"rnn": rnn, "lstm": lstm, "gru": gru, "gru_before": gru_before}
RATIONAL = [name for name, act in ACTIVATIONS.items() if act.rational]


def recorded(f, named, kind="rational"):
    """Gradients of ``f(named arrays)`` by name."""
    names = list(named)
    found = certify_function(
        lambda *own: f(dict(zip(names, own))), *named.values(), kind=kind, check=kind == "ball"
    )
    return dict(zip(names, found.gradients.values()))


def proved(f, named, theirs):
    for name, one in recorded(f, named).items():
        assert (lift(one.exact, "fraction") == lift(theirs[name], "fraction")).all(), name


def own(name):
    """Activation, its own parameters, and how it is written out with them."""
    act = ACTIVATIONS[name]
    parameters = {key: draw(*shape(H), seed=9) for key, shape, _ in act.start}
    return act, parameters, lambda p: lambda a: WRITTEN[name](a, *(p[key] for key in parameters))


def cell_case(name, activation):
    """Arrays, the written function and refnet's gradients, for a cotangent of the last states."""
    act, parameters, written = own(activation)
    cell = import_module(f"refnet.cells.{name}")
    G = len(cell.GATES)
    p = {"Whh": draw(G * H, H), "Wxh": draw(G * H, D), "bh": draw(G * H), **parameters}
    p |= {"bhn": draw(H)} if name == "gru" else {}
    p |= {key: draw(H, seed=n) for n, key in enumerate(cell.OPTIONAL)}
    x, h0 = draw(T, B, D), draw(2, B, H) if cell.STATES == 2 else draw(B, H)
    cotangent = draw(2, B, H, seed=5)

    def f(arrays):
        states = CELLS[name](
            arrays,
            arrays["x"],
            arrays["h0"],
            (lambda a: written(arrays)(a.T).T) if name == "rnn" else written(arrays),
        )
        return sum((lift(c, "rational") * h).sum() for c, h in zip(cotangent, states[-2:]))

    gates = {} if name == "rnn" else {"gate": RATIONAL_GATE}
    tape = cell.forward(p, x, h0, act, **gates)
    if activation == "softsign":  # its formula has no constant that would be a float
        assert (tape.h[1:] == np.stack(CELLS[name](p, x, h0, written(p)))).all()
    return f, {**p, "x": x, "h0": h0}, cell.backward(p, tape, cotangent, act, **gates)


@pytest.mark.parametrize("activation", RATIONAL)
@pytest.mark.parametrize("name", CELLS)
def test_cells(name, activation):
    proved(*cell_case(name, activation))


@pytest.mark.parametrize("name", CELLS)
def test_a_wrong_cell_is_rejected(name):
    f, named, theirs = cell_case(name, "softsign")
    theirs["bh"] = theirs["bh"].copy()
    theirs["bh"][1] += Fraction(1, 10**30)
    with pytest.raises(AssertionError, match="bh"):
        proved(f, named, theirs)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    """With ==; those that are not rational as the nearest float64 of balls."""
    act, parameters, written = own(name)
    a, cotangent = draw(3, H), draw(3, H, seed=1)
    kind = "rational" if act.rational else "ball"
    named = {"a": a, **parameters}
    found = recorded(lambda p: (lift(cotangent, kind) * written(p)(p["a"])).sum(), named, kind)
    p = {key: lift(value, kind) for key, value in named.items()}
    da, slopes = act.backward(p["a"], act.forward(p["a"], p), lift(cotangent, kind), p)
    for key, theirs in {"a": da, **slopes}.items():
        mine = found[key].exact
        if kind == "ball":
            assert all(one.overlaps(other) for one, other in zip(mine.flat, theirs.flat)), key
        else:
            assert (mine == theirs).all(), key


@pytest.mark.parametrize("reduction", ["mean", "sum", "batch_mean"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss, reduction):
    v, mask = draw(3, 2, C), np.array([[1, 1], [1, 1], [1, 0]], bool)
    y = np.arange(6).reshape(3, 2) % C if loss == "cross_entropy" else draw(3, 2, C, seed=2)
    counted, divisor = counted_predictions(mask, (3, 2), reduction)
    kind = "ball" if loss == "cross_entropy" else "rational"

    written = {
        "cross_entropy": lambda v, y: np.log(np.exp(v).sum()) - v[y],
        "squared_error": lambda v, y: ((v - lift(y, kind)) ** 2).sum() / C,
        "none": lambda v, y: (v * lift(y, kind)).sum(),
    }[loss]

    def f(p):
        total = sum(written(p["v"][t, b], y[t, b]) for t, b in np.argwhere(mask))
        return total / {"mean": 5, "sum": 1, "batch_mean": 2}[reduction]

    mine = recorded(f, {"v": v}, kind)["v"].exact
    theirs = score(loss, lift(v, kind), y if kind == "ball" else lift(y, kind), counted, divisor)[1]
    if kind == "rational":
        assert (mine == theirs).all()
    else:
        assert all(arb(one).overlaps(arb(other)) for one, other in zip(mine.flat, theirs.flat))


def inverse(M):
    """By Gauss and Jordan, entry by entry."""
    n = len(M)
    rows = [np.concatenate([M[i], np.eye(n)[i]]) for i in range(n)]
    for k in range(n):
        rows[k] = rows[k] / rows[k][k]
        rows = [row if i == k else row - row[k] * rows[k] for i, row in enumerate(rows)]
    return np.stack(rows)[:, n:]


def skew(A):
    return np.tril(A, -1) - np.tril(A, -1).T


def cayley(A):
    one = np.eye(len(A))
    return inverse(skew(A) + one) @ (one - skew(A))


def reflections(p):
    W = np.eye(3) + 0 * p["V"][0]
    for v in p["V"]:
        W = W - np.outer(W @ v, v) * 2 / (v @ v)
    return W


TRANSITIONS = {
    "orthogonal": ({"M": (3, 3)}, lambda p: p["M"]),
    "product": ({"D": (3, 3), "S": (3, 3)}, lambda p: p["D"] * p["S"]),
    "cayley": ({"A": (3, 3), "base": (3, 3)}, lambda p: cayley(p["A"]) @ p["base"]),
    "scaled_cayley": ({"A": (3, 3), "D": (3,)}, lambda p: cayley(p["A"]) * p["D"]),
    "householder": ({"V": (2, 3), "D": (3,)}, lambda p: reflections(p) * p["D"]),
    "svd": ({"U": (3, 3), "V": (3, 3), "s": (3,)}, lambda p: p["U"] * p["s"] @ p["V"].T),
}
CONSTANT = {"product": "D", "cayley": "base", "scaled_cayley": "D", "householder": "D"}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_transitions(name):
    shapes, written = TRANSITIONS[name]
    made, cotangent = transition(name), draw(3, 3, seed=7)
    parts = {key: draw(*shape, seed=n) for n, (key, shape) in enumerate(shapes.items())}
    W, tape = made.matrix(parts)
    theirs = made.pull_back(parts, tape, cotangent)
    constant = CONSTANT.get(name, "")
    free = {key: value for key, value in parts.items() if key != constant}
    fixed = {constant: lift(parts[constant], "rational")} if constant else {}
    proved(lambda p: (lift(cotangent, "rational") * written({**p, **fixed})).sum(), free, theirs)
    assert not constant or not theirs[constant].any()


def exponential(p):
    X = skew(p["A"])
    W = total = np.eye(3) + 0 * X
    for n in range(1, 40):  # |X| < 2: 40 terms reach 1e-36
        W = W @ X / n
        total = total + W
    return total


def spectrum(p):
    return p["U"] * (1 + Fraction(1, 2) * (2 / (1 + np.exp(-p["p"])) - 1)) @ p["V"].T


def blocks(p):
    M = np.triu(p["T"], 1)
    for k in (0, 2):
        c, s = p["g"][k // 2] * np.cos(p["a"][k // 2]), p["g"][k // 2] * np.sin(p["a"][k // 2])
        M[k, k], M[k + 1, k + 1] = M[k, k] + c, M[k + 1, k + 1] + c
        M[k + 1, k], M[k, k + 1] = M[k + 1, k] + s, M[k, k + 1] - s
    return p["P"] @ M @ p["P"].T


@pytest.mark.parametrize(
    "made, shapes, written",
    [
        (transition("expm"), {"A": (3, 3)}, exponential),
        (transition("svd", margin=0.5), {"U": (3, 2), "V": (3, 2), "p": (2,)}, spectrum),
        (transition("schur"), {"P": (4, 4), "T": (4, 4), "g": (2,), "a": (2,)}, blocks),
    ],
    ids=["expm", "svd with a margin", "schur"],
)
def test_transitions_that_are_not_rational(made, shapes, written):
    """To 25 digits, between balls of 128 and 256 bits."""
    parts = {
        key: lift(draw(*shape, seed=n), "ball") for n, (key, shape) in enumerate(shapes.items())
    }
    n = 4 if "P" in shapes else 3
    fixed = {"base": lift(np.eye(3), "ball")} if "A" in shapes else {}
    cotangent = lift(draw(n, n, seed=7), "ball")
    mine = recorded(lambda p: (cotangent * written(p)).sum(), parts, "ball")
    with precision(256):
        theirs = made.pull_back({**parts, **fixed}, made.matrix({**parts, **fixed})[1], cotangent)
        for name, one in mine.items():
            far = one.exact - theirs[name]
            assert max(float(abs(value).upper()) for value in far.flat) < 1e-25, name


@pytest.mark.parametrize("form", ["squared", "mean_square"])
def test_penalties(form):
    W = draw(2, 3)

    def f(p):
        E = p["W"] @ p["W"].T - np.eye(2, dtype=int)
        return (E * E).sum() * 3 / (4 if form == "mean_square" else 1)

    proved(f, {"W": W}, open_penalty({"W": W}, 3, form)[1])


def test_the_penalties_of_transitions():
    svd = transition("svd", prior=2, soft=3)
    parts = {"U": draw(3, 3), "V": draw(3, 3, seed=1), "s": draw(3)}

    def f(p):
        E = [p[name].T @ p[name] - np.eye(3, dtype=int) for name in ("U", "V")]
        return 2 * ((p["s"] - 1) ** 2).sum() + 3 * sum((one * one).sum() for one in E)

    proved(f, parts, svd.penalty(parts)[1])
    schur = transition("schur", modulus_penalty=5)
    g = {"g": draw(2)}
    proved(lambda p: 5 * ((p["g"] - 1) ** 2).sum(), g, schur.penalty(g)[1])


def test_whole_nets():
    """A recurrent net with a loss at every step and a feedforward net, to the loss."""
    net = RecurrentNet(
        D,
        H,
        C,
        activation=ACTIVATIONS["softsign"],
        loss="squared_error",
        readout="every",
        learn_h0=True,
    )
    params = {
        name: draw(*value.shape, seed=n)
        for n, (name, value) in enumerate(net.init(np.random.default_rng(0)).items())
    }
    x, y = draw(T, B, D), draw(T, B, C, seed=3)

    def f(p):
        h = np.broadcast_to(p["h0"], (B, H))
        states = rnn(p, p["x"], h, softsign)
        return (
            sum(
                ((h @ p["Why"].T + p["by"] - lift(y[t], "rational")) ** 2).sum()
                for t, h in enumerate(states)
            )
            / C
            / (T * B)
        )

    proved(f, {**params, "x": x}, loss_and_gradients(net, params, Batch(x, y)).gradients)
    deep = FeedforwardNet((D, H, H, C), activation=ACTIVATIONS["softsign"], loss="squared_error")
    params = {
        name: draw(*value.shape, seed=n)
        for n, (name, value) in enumerate(deep.init(np.random.default_rng(0)).items())
    }

    def g(p):
        h = p["x"]
        for layer in range(1, 4):
            a = h @ p[f"W{layer}"].T + p[f"b{layer}"]
            h = softsign(a) if layer < 3 else a
        return ((h - lift(y[0], "rational")) ** 2).sum() / C / B

    proved(g, {**params, "x": x[0]}, loss_and_gradients(deep, params, Batch(x[0], y[0])).gradients)
