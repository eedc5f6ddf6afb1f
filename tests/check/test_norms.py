"""A transition's parts are drawn at every norm by which programs choose how to exponentiate."""

from dataclasses import replace
from math import factorial

import numpy as np
import pytest

from refnet import RecurrentNet, cli
from refnet.check import survey, vectors
from refnet.check.cases import NORMS, bounded, random_params, reference_results
from refnet.check.verdict import EXPLAINED
from refnet.matrices.transitions import TRANSITIONS, transition

pytestmark = pytest.mark.needs("flint")

PADE = {3: 0.01495585, 5: 0.2539398, 7: 0.9504179, 9: 2.097848, 13: 5.371920}
"""Degrees and the largest 1-norms for them, in float64: Higham (2005), Table 2.3."""
PADE32 = {3: 0.4258730, 5: 1.880153, 7: 3.925725}
TAYLOR = {"float32": (6e-4, 0.0515, 0.577, 1.47, 3.02), "float64": (3.41e-4, 0.0498, 0.299, 1.09)}
"""PyTorch's, as benchmarks/exponential.py measures them."""
NET = RecurrentNet(3, 4, 5, transition=transition("expm"))


def skew(A):
    L = np.tril(A, -1)
    return L - L.T


def norm_of(X):
    return abs(X).sum(axis=0).max()


def pade(X, degree, squarings, last):
    """The exponential by an approximant whose last coefficient is multiplied by ``last``."""
    X = X / 2**squarings
    c = [
        factorial(2 * degree - k)
        * factorial(degree)
        / (factorial(2 * degree) * factorial(k) * factorial(degree - k))
        for k in range(degree + 1)
    ]
    c[degree] *= last
    up = down = np.zeros_like(X)
    for a in reversed(c):
        unit = np.asarray(a * np.eye(len(X)), X.dtype)
        up, down = up @ X + unit, -down @ X + unit
    power = np.linalg.solve(down, up)
    for _ in range(squarings):
        power = power @ power
    return power


def gradients(p, batch, wrong):
    """Those of NET; ``wrong``: the degree whose approximant has a mistake, or "squared"."""
    X, base = skew(p["Whh.A"]), p["Whh.base"]
    norm, n = norm_of(X), len(X)
    degree = next((degree for degree, most in PADE.items() if norm <= most), 13)
    squarings = max(0, int(np.ceil(np.log2(norm / PADE[13])))) if norm else 0
    last = 0.9 if wrong == ("squared" if squarings else degree) else 1
    dense = {name: value for name, value in p.items() if "." not in name}
    r = reference_results(
        replace(NET, hidden=n, transition=None),
        {**dense, "Whh": pade(X, degree, squarings, last) @ base},
        batch,
    )
    d = r.pop("dWhh") @ base.T
    dX = pade(np.block([[X.T, d], [0 * d, X.T]]), degree, squarings, last)[:n, n:]
    return {**r, "dWhh.A": np.tril(dX - dX.T, -1), "dWhh.base": 0 * base}


FILE = """
from refnet import Batch
from test_norms import gradients

def judged(p, x, y):
    return gradients(p, Batch(x, y), {!r})
"""


@pytest.mark.parametrize("wrong", [None, *PADE, "squared"])
def test_a_mistake_in_one_range_of_norms_is_found(wrong, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(FILE.format(wrong))
    status = cli.main(
        [
            "check",
            "function",
            f"{tmp_path / 'mine.py'}:judged",
            "--transition",
            "expm",
            "--dtypes",
            "float64",
        ]
    )
    assert status == (0 if wrong is None else 1), capsys.readouterr()


def ranges():
    for edges in (PADE.values(), PADE32.values(), *TAYLOR.values()):
        edges = (0, *edges, np.inf)
        yield from zip(edges[:-1], edges[1:])


@pytest.mark.parametrize("low, high", [*ranges()])
def test_every_range_of_the_usual_programs_has_a_norm(low, high):
    drawn = [
        norm_of(
            skew(
                random_params(replace(NET, hidden=H), np.random.default_rng(0), float, norm=norm)[
                    "Whh.A"
                ]
            )
        )
        for norm in NORMS
        for H in (4, 19)
    ]
    stored = [
        norm_of(skew(params["Whh.A"].astype(float)))
        for name, _, params, _ in vectors.catalogue()
        if name.startswith("rnn-expm")
    ]
    for norms in (drawn[::2], drawn[1::2], stored):
        assert any(low < norm <= high for norm in norms if norm)


def test_bounded_parts_move_and_others_do_not():
    """W stays as large as it was, at every norm."""
    for name in TRANSITIONS:
        net = replace(NET, transition=transition(name))
        for norm in NORMS:
            near, distant = (
                random_params(
                    net, np.random.default_rng(0), float, norm=scale, recurrent="orthogonal"
                )
                for scale in (0, norm)
            )
            changed = {key.partition(".")[2] for key in near if (near[key] != distant[key]).any()}
            assert changed == (bounded(net) if norm else set())
            start, W = (abs(net.matrices(p)[0]["Whh"]).max() for p in (near, distant))
            assert W < 3 * start
    assert {"A"} == bounded(NET) and not bounded(replace(NET, transition=None))


def test_the_mistake_of_pytorch_is_found(tmp_path, capsys):
    """Of its function on the command line, and of its parametrisation; if this PyTorch has it."""
    torch = pytest.importorskip("torch", reason="PyTorch (extra torch) is not installed")
    a = torch.tensor([[0, 0.03], [-0.03, 0]], dtype=torch.float64)
    mistaken = bool(abs(torch.linalg.matrix_exp(a)[0, 1] - np.sin(0.03)) > 1e-15)
    (tmp_path / "mine.py").write_text("""
import torch

def loss(p, x, y):
    L = torch.tril(p["Whh.A"], -1)
    W = torch.linalg.matrix_exp(L - L.T) @ p["Whh.base"].detach()
    h = torch.zeros(x.shape[1], len(W), dtype=x.dtype)
    for row in x:
        h = torch.tanh(row @ p["Wxh"].T + h @ W.T + p["bh"])
    return torch.nn.functional.cross_entropy(h @ p["Why"].T + p["by"], y)
""")
    status = cli.main(
        ["check", "torch", "--function", f"{tmp_path / 'mine.py'}:loss", "--transition", "expm"]
    )
    out = capsys.readouterr().out
    assert status == mistaken, out
    assert (out.count("not rounding") == 2) == mistaken
    wrong = {
        row["what"]
        for row in survey.torch_rows(((1, 4, 1),), dtypes=(np.float64,))
        if row["verdict"] != EXPLAINED
    }
    assert wrong == ({"orthogonal, matrix_exp at 1-norm 0.03"} if mistaken else set())
