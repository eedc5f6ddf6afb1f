"""Complex recorded arrays: gradients in both parts, as PyTorch defines them."""

import numpy as np
import pytest
import scipy.linalg

from refnet.exact import certify_function, complexes
from support.arguments import refused
from support.balls import assert_rounding_is_small

pytestmark = pytest.mark.needs("flint")

RNG = np.random.default_rng(9)
Z = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
X = RNG.normal(size=(3, 3))
TEXTS = {
    "arithmetic": "abs((z * x + 2j - z / (x + z * 1j)) ** 3 - 1 / z).sum() + (-z).real[0, 1]",
    "products": "((z @ x @ z.T) * (x @ z)).imag.sum() + np.einsum('ab,bc,ca->', z, x, z).real",
    "elementary": "(np.exp(1j * x) * np.tanh(z) * np.conj(z)).real.sum() + z.conj().imag.sum()",
    "places": "(np.concatenate([z, x])[1:5].reshape(2, -1).T @ z[:2, :2]).real.sum()"
    "+ np.stack([z, z.T]).sum(axis=0)[0, 1].imag + np.where(x > 0, z, 2j).sum().imag",
    "assigned": "assigned(z, x)",
    "fourier": "abs(np.fft.ifft(np.fft.fft(z, axis=0) * x, norm='ortho')).sum()"
    "+ np.fft.fft(x).imag[0, 1]",
    "linear algebra": "np.linalg.norm(np.linalg.solve(z, z[0] * 1j)) + np.linalg.inv(z).real[0, 0]"
    "+ np.vdot(z, x).imag + np.angle(z)[0, 1] + scipy.linalg.expm(1j * (x + x.T)).imag[0, 2]",
}


def assigned(z, x):
    h = np.zeros((4, 3), complex)
    for t in range(3):
        h[t + 1] = 0.5j * h[t] + z[t]
    h *= 1 + 1j
    h.real[0] = x[0]
    return (abs(h[[0, 2, 3]]) ** 2).sum() * (z == z).all() + sum(1 for _ in h)


@pytest.mark.parametrize("name", TEXTS)
def test_both_parts(name):
    """certify_function compares with NumPy's complex numbers and with differences."""
    f = eval(f"lambda z, x: {TEXTS[name]}", globals())
    certified = certify_function(f, Z, X)
    gradient = certified.gradients["z"]
    assert gradient.value.dtype == complex and gradient.exact.shape == gradient.radius.shape == (
        3,
        3,
    )
    h = 1e-6
    slope = (f(Z + 1j * h * X, X) - f(Z - 1j * h * X, X)) / (2 * h)
    assert abs((gradient.value.imag * X).sum() - slope) < 1e-6 * (1 + abs(slope))
    assert_rounding_is_small(certified)


def test_complex_results_need_a_cotangent():
    w = np.array([1 + 2j, 3 - 1j])
    certified = certify_function(lambda z: z[0, :2] * z[1, :2], Z, cotangent=w)
    assert certified.value.value == pytest.approx(Z[0, :2] * Z[1, :2], rel=1e-15)
    expected = w * np.conj(Z[1, :2])  # PyTorch's convention
    assert certified.gradients["z"].value[0, :2] == pytest.approx(expected, rel=1e-15)
    with refused("complex numbers; pass cotangent"):
        certify_function(lambda z: z[0, 0], Z)
    with refused("cotangent is complex"):
        certify_function(lambda z: z.real[0], Z, cotangent=Z[0])


def test_as_in_pytorch():
    torch = pytest.importorskip("torch")
    z = torch.tensor(Z, requires_grad=True)
    (abs(torch.fft.fft(z) @ z) ** 2).sum().backward()
    ours = certify_function(lambda z: (abs(np.fft.fft(z) @ z) ** 2).sum(), Z).gradients["z"].value
    assert ours == pytest.approx(z.grad.numpy(), rel=1e-12)


def test_a_wrong_rule_is_rejected(monkeypatch):
    monkeypatch.setitem(complexes._OPERATIONS, "conjugate", lambda z: z)
    with refused("on NumPy's own arrays f is off by", ArithmeticError):
        certify_function(lambda z: (np.conj(z) * Z).real.sum(), Z)
    with refused("np.sort of complex numbers", TypeError):
        certify_function(lambda z: np.sort(z).real.sum(), Z)
    assert scipy.linalg.expm(Z).dtype == complex
