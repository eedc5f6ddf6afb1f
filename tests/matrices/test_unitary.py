"""Unitary matrices as real ones of pairs: against complex numbers, exactly, and in PyTorch."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import expm

from refnet.batch import Batch
from refnet.check import judge
from refnet.maths.dual import Dual, dual_array, parts
from refnet.maths.linalg import eye
from refnet.matrices.initializers import initialize
from refnet.matrices.transitions import Unitary, UnitaryEvolution, transition
from refnet.matrices.transitions.manifold import Manifold
from refnet.matrices.transitions.unitary import _folded, _order, _whole
from refnet.nets.recurrent import RecurrentNet
from refnet.prove.checks import generic
from support.arguments import refused
from support.oracles import planted

EPS = np.finfo(float).eps


class Angle:
    """An angle whose cosine and sine are rational, which moves at a rational speed."""

    def __init__(self, t, speed=None):
        self.c, self.s, self.speed = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t), speed

    def cos(self):
        return self.c if self.speed is None else Dual(self.c, -self.s * self.speed)

    def sin(self):
        return self.s if self.speed is None else Dual(self.s, self.c * self.speed)


angles = np.frompyfunc(Angle, 1, 1)
moving = np.frompyfunc(Angle, 2, 1)


def evolution_gap(n, pull_back=UnitaryEvolution.pull_back, seed=1):
    """``<w, J v> - <J' w, v>`` on rationals."""
    rng, matrix = np.random.default_rng(seed), UnitaryEvolution(seed)
    t, speed = generic(rng, (3, n)), generic(rng, (3, n))
    v, v_dot, w = generic(rng, (2, 2 * n)), generic(rng, (2, 2 * n)), generic(rng, (2 * n, 2 * n))
    at = {"theta": angles(t), "v": v}
    pushed = matrix.matrix({"theta": moving(t, speed), "v": dual_array(v, v_dot)})[0]
    grads = pull_back(matrix, at, matrix.matrix(at)[1], w)
    pulled = (grads["theta"] * speed).sum() + (grads["v"] * v_dot).sum()
    return (parts(pushed)[1] * w).sum() - pulled


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_evolution_is_exactly_pulled_back(n):
    """And exactly orthogonal, of blocks, with a Fourier transform of n rational numbers."""
    assert evolution_gap(n) == 0
    rng = np.random.default_rng(n)
    at = {"theta": angles(generic(rng, (3, n))), "v": generic(rng, (2, 2 * n))}
    W = UnitaryEvolution(5).matrix(at)[0]
    assert (W.T @ W == eye(2 * n, object)).all() and (2 * W == _whole(_folded(W))).all()


@pytest.mark.parametrize(
    "old, new",
    [
        ("_turned_pull(columns[3], d)", "_turned_pull(columns[2], d)"),
        ("c[1], -s[1]", "c[1], s[1]"),
        ("mirrors[0].pull(columns[1], d)", "mirrors[0].pull(columns[0], d)"),
        ("d = divided(matmul(F, d), n)", "d = matmul(F, d)"),
        ("d = matmul(F.T, d)", "d = matmul(F, d)"),
        ("np.argsort(self._rows(n))", "self._rows(n)"),
        ("mirrors[1](d)", "d"),
    ],
)
def test_a_wrong_pullback_is_noticed(old, new):
    assert (_order(4, 1)[_order(4, 1)] != np.arange(4)).any()
    assert evolution_gap(4, planted(UnitaryEvolution.pull_back, old, new)) != 0


def complex_of(W):
    return W[::2, ::2] + 1j * W[1::2, ::2]


def complex_step(W, G, rate, step, metric):
    """Each retraction in complex arithmetic."""
    K = W.conj().T @ G
    S = K - K.conj().T if metric == "canonical" else (K - K.conj().T) / 2
    identity = np.eye(len(W))
    if step == "cayley":
        A = W @ S @ W.conj().T
        return np.linalg.solve(identity + rate / 2 * A, (identity - rate / 2 * A) @ W)
    if step == "geodesic":
        return W @ expm(-rate * S)
    target = W - rate * W @ S
    if step == "polar":
        u, _, vt = np.linalg.svd(target)
        return u @ vt
    Q, R = np.linalg.qr(target)
    return Q * (np.diag(R) / abs(np.diag(R)))


@pytest.mark.parametrize("metric", ["canonical", "euclidean"])
@pytest.mark.parametrize("step", ["cayley", "qr", "polar", "geodesic"])
def test_steps_are_those_of_complex_numbers(step, metric):
    """With a large rate; the entries are off by some hundred roundings. A step of the real columns
    alone, orthonormal as they are, leaves the unitary matrices."""
    rng, matrix = np.random.default_rng(0), Unitary(step, metric)
    M, dM = matrix.init(rng.normal(size=(8, 8)))["M"], rng.normal(size=(8, 4))
    arrival = matrix.retract({"W.M": M}, {"W.M": dM}, ("W.M",), 0.3).params["W.M"]
    G = dM[::2] + 1j * dM[1::2]
    wanted = complex_step(complex_of(_whole(M)), G, 0.3, step, metric)
    assert abs(complex_of(_whole(arrival)) - wanted).max() <= 200 * EPS
    alone = Manifold.retract(matrix, {"W.M": M}, {"W.M": dM}, ("W.M",), 0.3).params["W.M"]
    assert abs(alone.T @ alone - np.eye(4)).max() <= 200 * EPS
    assert abs(_whole(alone).T @ _whole(alone) - np.eye(8)).max() > 0.01


def test_a_rational_step_is_exactly_unitary():
    M = np.array([[3, 0], [4, 0], [0, 5], [0, 0]], object) * Fraction(1, 5)
    G = generic(np.random.default_rng(2), (4, 2))
    W = _whole(Unitary().retract({"W.M": M}, {"W.M": G}, ("W.M",), Fraction(1, 7)).params["W.M"])
    assert (W.T @ W == eye(4, object)).all() and (W[:, ::2] != M).any()


@pytest.mark.parametrize("start", ["gaussian", "identity", "chain", "orthogonal"])
def test_starts(start):
    """The unitary matrix is at least as near as any other of some; phases are uniform."""
    rng = np.random.default_rng(0)
    W = initialize(start, (8, 8), rng)
    nearest = Unitary().matrix(Unitary().init(W))[0]
    assert abs(nearest.T @ nearest - np.eye(8)).max() <= 100 * EPS
    for _ in range(20):
        other = Unitary().matrix(Unitary().init(nearest + rng.normal(size=(8, 8)) / 9))[0]
        assert np.linalg.norm(W - nearest) <= np.linalg.norm(W - other) * (1 + 10 * EPS)
    if start in ("gaussian", "orthogonal"):
        wide = UnitaryEvolution().init(initialize(start, (400, 400), rng))["theta"].ravel()
        counts = np.histogram(wide, 4, (-np.pi, np.pi))[0]
        assert abs(counts - 150).max() < 6 * 150**0.5


def test_what_does_not_fit_is_refused():
    for name in ("urnn", "unitary"):
        with refused(f"transition {name}: the matrix has 5 rows; need an even number.*use 6"):
            RecurrentNet(1, 5, 1, transition=name).init(np.random.default_rng(0))
        with refused("need an even number"):
            transition(name).init(np.eye(3))
    with refused("last two columns is zero.*such as orthogonal"):
        RecurrentNet(1, 4, 1, transition="urnn").init(np.random.default_rng(0), recurrent="chain")
    with refused("transition urnn: seed"):
        transition("urnn:seed=-1")


def torch_results(net, params, batch, inverse="ifft"):
    """Loss and gradients of a complex net, with PyTorch's own complex numbers and transforms."""
    import torch

    def pairs(a, axis=0):
        even, odd = (a.index_select(axis, torch.arange(k, a.shape[axis], 2)) for k in (0, 1))
        return torch.complex(even, odd)

    p = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    x = torch.tensor(batch.x, requires_grad=True)
    if isinstance(net.transition, Unitary):
        W = pairs(p["Whh.M"])
    else:
        phases = torch.exp(1j * p["Whh.theta"])
        n = phases.shape[1]
        z1, z2 = pairs(p["Whh.v"], 1)

        def mirror(z, X):
            return X - 2 * torch.outer(z, z.conj() @ X) / (z.conj() @ z)

        W = torch.fft.fft(torch.diag(phases[0]), dim=0)
        W = phases[1][:, None] * mirror(z1, W)[torch.as_tensor(_order(n, net.transition.seed))]
        W = phases[2][:, None] * mirror(z2, getattr(torch.fft, inverse)(W, dim=0))
    V, b = pairs(p["Wxh"]), pairs(p["bh"])
    h = torch.zeros(x.shape[1], len(b), dtype=V.dtype)
    for row in x:
        z = row.to(V.dtype) @ V.T + h @ W.T + b
        h = z / z.abs() * torch.relu(z.abs() + p["b_mod"])
    outputs = torch.view_as_real(h).reshape(len(h), -1) @ p["Why"].T + p["by"]
    loss = torch.nn.functional.cross_entropy(outputs, torch.tensor(batch.y))
    loss.backward()
    grads = {f"d{name}": value.grad.numpy() for name, value in {**p, "x": x}.items()}
    return {"loss": loss.detach().numpy(), "outputs": outputs.detach().numpy(), **grads}


@pytest.mark.needs("torch", "flint")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["urnn:seed=3", "unitary"])
def test_against_complex_pytorch(name, dtype):
    """The judge explains a complex program's gradients by rounding, and rejects one that transforms
    forward where the inverse belongs."""
    rng = np.random.default_rng(4)
    net = RecurrentNet(2, 6, 3, transition=name, activation="modrelu_pairs")
    params = net.init(rng, dtype, recurrent="orthogonal")
    params["b_mod"] = rng.normal(size=3).astype(dtype) / 8
    batch = Batch(rng.normal(size=(7, 4, 2)).astype(dtype), rng.integers(0, 3, 4))
    assert judge(net, torch_results(net, params, batch), params, batch).passed
    if name != "unitary":
        assert not judge(net, torch_results(net, params, batch, "fft"), params, batch).passed
