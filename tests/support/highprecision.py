"""Losses and gradients in mpmath, written without refnet: what certified values are held against.

Numbers are ``Number``: an mpf that remembers what it was computed from, so that one sweep back
over everything computed gives all derivatives (scalar reverse mode). Nets are written as their
equations read; nothing is shared with refnet but the names of parameters and settings.
"""

from functools import partial

import mpmath
import numpy as np
from mpmath import mpf

DIGITS = 100
"""mpmath's precision. Cancellation in these small nets costs a few digits, so that an error of
10^-ERROR, absolute, is above any rounding here, and far below the radius of any ball in use."""
ERROR = 80


class Number:
    tape: list = []

    def __init__(self, value, sources=()):
        self.value, self.sources, self.slope = mpf(value), sources, mpf(0)
        Number.tape.append(self)

    @staticmethod
    def of(value):
        return value if isinstance(value, Number) else Number(value)

    def __neg__(self):
        return Number(-self.value, [(self, -1)])

    def __add__(self, other):
        other = Number.of(other)
        return Number(self.value + other.value, [(self, 1), (other, 1)])

    def __sub__(self, other):
        return self + -Number.of(other)

    def __mul__(self, other):
        other = Number.of(other)
        return Number(self.value * other.value, [(self, other.value), (other, self.value)])

    def __truediv__(self, other):
        other = Number.of(other)
        value = self.value / other.value
        return Number(value, [(self, 1 / other.value), (other, -value / other.value)])

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return -self + other

    def __rtruediv__(self, other):
        return Number.of(other) / self


def _function(value, slope):
    return np.frompyfunc(lambda a: Number(value(a.value), [(a, slope(a.value))]), 1, 1)


exp = _function(mpmath.exp, mpmath.exp)
log = _function(mpmath.log, lambda a: 1 / a)
cos = _function(mpmath.cos, lambda a: -mpmath.sin(a))
sin = _function(mpmath.sin, mpmath.cos)
tanh = _function(mpmath.tanh, lambda a: mpmath.sech(a) ** 2)
size = _function(abs, mpmath.sign)


def sqrt(number):
    root = mpmath.sqrt(number.value)
    return Number(root, [(number, 1 / (2 * root))])


def sigmoid(a):
    return 1 / (1 + exp(-a))


def numbers(array):
    return each(lambda value: Number(value if isinstance(value, mpf) else float(value)), array)


def each(function, *arrays):
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


def pick(a, left, right):
    """Entry by entry ``left`` where a <= 0, else ``right``."""
    return each(lambda v, x, y: Number.of(x if v.value <= 0 else y), a, left, right)


def in_pairs(a, p):
    out = np.empty_like(a)
    swap = each(lambda x, y: x.value < y.value, a[..., ::2], a[..., 1::2]).astype(bool)
    out[..., ::2] = np.where(swap, a[..., 1::2], a[..., ::2])
    out[..., 1::2] = np.where(swap, a[..., ::2], a[..., 1::2])
    return out


def mod_relu(a, p):
    r = size(a) + p["b_mod"]
    return pick(r, 0 * r, pick(a, -r, r))


def mod_relu_of_pairs(a, p):
    """Unit by unit: a modulus of 0 has the number 0."""
    out = np.empty_like(a)
    for index in np.ndindex(*a.shape[:-1], a.shape[-1] // 2):
        i = (*index[:-1], 2 * index[-1])
        x, y = a[i], a[(*index[:-1], 2 * index[-1] + 1)]
        r = sqrt(x * x + y * y) if x.value or y.value else Number(0)
        grown = r + p["b_mod"][index[-1]]
        factor = grown / r if r.value and grown.value > 0 else Number(int(grown.value > 0))
        out[i], out[(*index[:-1], 2 * index[-1] + 1)] = x * factor, y * factor
    return out


ACTIVATIONS = {
    "identity": lambda a, p: a,
    "tanh": lambda a, p: tanh(a),
    "sigmoid": lambda a, p: sigmoid(a),
    "softsign": lambda a, p: a / (1 + size(a)),
    "relu": lambda a, p: pick(a, 0 * a, a),
    "leaky_relu": lambda a, p: pick(a, 0.01 * a, a),
    "prelu": lambda a, p: pick(a, p["slope"] * a, a),
    "elu": lambda a, p: pick(a, exp(a) - 1, a),
    "oplu": in_pairs,
    "modrelu": mod_relu,
    "modrelu_pairs": mod_relu_of_pairs,
}


def split(a, gates):
    return np.split(a, gates, axis=-1)


def rnn(p, x, state, act):
    return [act(x @ p["Wxh"].T + state[0] @ p["Whh"].T + p["bh"], p)]


def lstm(p, x, state, act, coupled=False):
    h, c = state
    i, *f, g, o = split(x @ p["Wxh"].T + h @ p["Whh"].T + p["bh"], 3 if coupled else 4)
    i = sigmoid(i + p.get("Wpi", 0) * c)
    f = 1 - i if coupled else sigmoid(f[0] + p.get("Wpf", 0) * c)
    c = f * c + i * act(g, p)
    h = sigmoid(o + p.get("Wpo", 0) * c) * act(c, p)
    return [h @ p["Whr"].T if "Whr" in p else h, c]


def gru(p, x, state, act, before=False):
    """``before``: the state is reset before the product, not after it."""
    (h,) = state
    r, z, n = split(x @ p["Wxh"].T + p["bh"], 3)
    Wr, Wz, Wn = np.split(p["Whh"], 3)
    r, z = sigmoid(r + h @ Wr.T), sigmoid(z + h @ Wz.T)
    n = act(n + ((r * h) @ Wn.T if before else r * (h @ Wn.T + p["bhn"])), p)
    return [(1 - z) * n + z * h]


CELLS = {
    "rnn": rnn,
    "lstm": lstm,
    "gru": gru,
    "gru_before": partial(gru, before=True),
    "cifg": partial(lstm, coupled=True),
}


def solve(a, b):
    """Gauss-Jordan, always with the largest pivot."""
    a, b, n = a.copy(), b.copy(), len(a)
    for k in range(n):
        best = max(range(k, n), key=lambda i: abs(a[i, k].value))
        a[[k, best]], b[[k, best]] = a[[best, k]], b[[best, k]]
        b[k], a[k] = b[k] / a[k, k], a[k] / a[k, k]
        for i in set(range(n)) - {k}:
            a[i], b[i] = a[i] - a[k] * a[i, k], b[i] - b[k] * a[i, k]
    return b


def identity(n):
    return numbers(np.eye(n))


def power_series(X):
    """e^X by its power series at X / 2^10, squared ten times: 60 terms of a norm below 1/50
    leave 1e-180."""
    X, out = X / 2**10, identity(len(X))
    for k in range(60, 0, -1):
        out = identity(len(X)) + (X @ out) / k
    for _ in range(10):
        out = out @ out
    return out


def skew(A):
    return np.tril(A, -1) - np.tril(A, -1).T


def from_base(X, base):
    return base @ X.T if base.shape[0] < base.shape[1] else X @ base


def cayley(A):
    return solve(identity(len(A)) + skew(A), identity(len(A)) - skew(A))


def reflections(V, D):
    """The reflections one after the other, as matrices."""
    if D.ndim == 2:
        return reflections(V, D[:, 0]).T
    out = identity(V.shape[1])
    for v in V:
        out = out @ (identity(len(v)) - np.outer(2 * v, v) / (v @ v))
    return out[:, : len(D)] * D


def blocks(P, T, g, a):
    n = len(P)
    M = np.triu(T, 1)
    for k in range(n // 2):
        c, s = g[k] * cos(a[k]), g[k] * sin(a[k])
        i, j = 2 * k, 2 * k + 1
        M[i, i], M[i, j], M[j, i], M[j, j] = c, M[i, j] - s, s, c
    return P @ M @ P.T


def in_blocks(real, imaginary):
    out = np.empty((2 * len(real), 2 * len(real)), object)
    out[::2, ::2] = out[1::2, 1::2] = real
    out[1::2, ::2], out[::2, 1::2] = imaginary, -imaginary
    return out


def evolution(matrix, theta, v):
    """Every factor as a matrix; the transform with its entries."""
    n = theta.shape[1]
    order = np.argsort(np.random.SeedSequence(matrix.seed).generate_state(n, np.uint64))
    turn = np.array([[2 * mpmath.pi * j * k / n for k in range(n)] for j in range(n)], object)
    F = in_blocks(*(numbers(each(f, -turn)) for f in (mpmath.cos, mpmath.sin)))
    P = in_blocks(numbers(np.eye(n)[order]), numbers(np.zeros((n, n))))
    D = [in_blocks(np.diag(cos(row)) + zeros(n), np.diag(sin(row)) + zeros(n)) for row in theta]
    R = []
    for z in v:
        x, y = z[::2], z[1::2]
        square = (z * z).sum()
        real = identity(n) - 2 * (np.outer(x, x) + np.outer(y, y)) / square
        R.append(in_blocks(real, -2 * (np.outer(y, x) - np.outer(x, y)) / square))
    return D[2] @ R[1] @ (F.T / n) @ D[1] @ P @ R[0] @ F @ D[0]


def zeros(n):
    return numbers(np.zeros((n, n)))


TRANSITIONS = {
    "Orthogonal": lambda matrix, M: M,
    "Product": lambda matrix, D, S: D * S,
    "SVD": lambda matrix, U, V, s=None, p=None: (
        U
        * (
            numbers(np.ones(U.shape[1]))
            if s is None and p is None
            else s
            if p is None
            else 2 * float(matrix.margin) * (sigmoid(p) - 0.5) + 1
        )
        @ V.T
    ),
    "MatrixExponential": lambda matrix, A, base: from_base(power_series(skew(A)), base),
    "CayleyMap": lambda matrix, A, base: from_base(cayley(A), base),
    "ScaledCayley": lambda matrix, A, D: cayley(A) * D,
    "Householder": lambda matrix, V, D: reflections(V, D),
    "Schur": lambda matrix, P, T, g, a: blocks(P, T, g, a),
    "Unitary": lambda matrix, M: in_blocks(M[::2], M[1::2]),
    "UnitaryEvolution": evolution,
}
CONSTANT = ("base", "D")
"""Parts of a transition that are not trained: refnet gives them the gradient 0."""


def matrix_of(transition, p, slot):
    parts = {
        name[len(slot) + 1 :]: value for name, value in p.items() if name.startswith(slot + ".")
    }
    return TRANSITIONS[type(transition).__name__](transition, **parts)


def loss_of(net, outputs, y, mask):
    """The reduced loss of predictions (..., C)."""
    counted = [
        index
        for index in np.ndindex(outputs.shape[:-1])
        if mask is None or len(index) == 1 or mask[index]
    ]
    total = Number(0)
    for index in counted:
        v = outputs[index]
        if net.loss == "cross_entropy":
            total = total + log(exp(v).sum()) - v[y[index]]
        else:
            off = v - y[index].astype(float)
            total = total + (off @ off) / len(v)
    return total / max(
        {"sum": 1, "mean": len(counted), "batch_mean": outputs.shape[-2]}[net.reduction], 1
    )


def recurrent(net, p, x, mask):
    T, B, _ = x.shape
    gates = [""] if len(net.gates) == 1 else [f"_{gate}" for gate in net.gates]
    if net.transition is not None:
        p = {
            **p,
            "Whh": np.concatenate([matrix_of(net.transition, p, f"Whh{gate}") for gate in gates]),
        }
    seen = {
        name: value if name in ("Why", "by", "slope", "b_mod") else float(net.gain) * value
        for name, value in p.items()
    }
    count = 2 if net.cell in ("lstm", "cifg") else 1
    h0 = p["h0"]
    if h0.ndim == count:
        h0 = np.broadcast_to(h0[..., None, :], (*h0.shape[:-1], B, net.hidden))
    history = [[h0] if count == 1 else [h0[0][..., : p["Whh"].shape[1]], h0[1]]]
    for t in range(T):
        history.append(CELLS[net.cell](seen, x[t], history[-1], ACTIVATIONS[net.activation.name]))
    states = {
        name: np.stack([state[n] for state in history]) for n, name in enumerate("hc"[:count])
    }
    if net.readout == "every":
        read = states["h"][1:]
    else:
        last = [
            T if mask is None else max([0, *(np.flatnonzero(mask[:, b]) + 1)]) for b in range(B)
        ]
        read = np.stack([states["h"][last[b], b] for b in range(B)])
    return read @ p["Why"].T + p["by"], states


def feedforward(net, p, x, mask):
    h, states = x, {}
    for layer in range(1, len(net.widths) - 1):
        W = (
            matrix_of(net.transition, p, f"W{layer}")
            if net.transition is not None and f"W{layer}" not in p
            else p[f"W{layer}"]
        )
        slopes = {name: p[f"{name}{layer}"] for name in ("slope", "b_mod") if f"{name}{layer}" in p}
        h = ACTIVATIONS[net.activation.name](h @ W.T + p[f"b{layer}"], slopes)
        states[f"h{layer}"] = h
    last = len(net.widths) - 1
    return h @ p[f"W{last}"].T + p[f"b{last}"], states


def evaluate(net, params, batch):
    """Every quantity that ``certify`` gives, by the same names, as object arrays of mpf."""
    Number.tape = []
    with mpmath.workdps(DIGITS):
        p = {name: numbers(value) for name, value in params.items()}
        is_recurrent = hasattr(net, "cell")
        if is_recurrent and "h0" not in p:
            lead = (2,) if net.cell in ("lstm", "cifg") else ()
            p["h0"] = numbers(np.zeros((*lead, batch.x.shape[1], net.hidden)))
        x = numbers(batch.x)
        outputs, states = (recurrent if is_recurrent else feedforward)(net, p, x, batch.mask)
        loss = loss_of(net, outputs, batch.y, batch.mask)
        loss.slope = mpf(1)
        for number in reversed(Number.tape):
            for source, slope in number.sources:
                source.slope += slope * number.slope
        values = {"loss": np.array(loss, object), "outputs": outputs, **states}
        return {name: each(lambda v: v.value, value) for name, value in values.items()} | {
            f"d{name}": each(lambda v: v.slope, value)
            if name.split(".")[-1] not in CONSTANT
            else each(lambda v: mpf(0), value)
            for name, value in {**p, "x": x}.items()
        }
