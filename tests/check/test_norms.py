"""A transition's parts are drawn at every norm by which programs choose how to exponentiate."""

from dataclasses import replace

import numpy as np
import pytest

from refnet import cli
from refnet.check import survey, vectors
from refnet.check.cases import NORMS, bounded, random_params
from refnet.check.verdict import EXPLAINED
from refnet.matrices.transitions import TRANSITIONS, transition
from support.exponentials import NET, PADE, norm_of, skew

pytestmark = pytest.mark.needs("flint")

PADE32 = {3: 0.4258730, 5: 1.880153, 7: 3.925725}
TAYLOR = {"float32": (6e-4, 0.0515, 0.577, 1.47, 3.02), "float64": (3.41e-4, 0.0498, 0.299, 1.09)}
"""PyTorch's, as benchmarks/exponential.py measures them."""

FILE = """
from refnet import Batch
from support.exponentials import gradients

def judged(p, x, y):
    return gradients(p, Batch(x, y), {!r})
"""


@pytest.mark.parametrize("wrong", [None, *PADE, "squared"])
def test_a_mistake_in_one_range_of_norms_is_found(wrong, tmp_path, capsys, request):
    if wrong != "squared":
        request.getfixturevalue("unnamed")
    (tmp_path / "mine.py").write_text(FILE.format(wrong))
    command = "check function --dtypes float64 --transition expm".split()
    status = cli.main([*command, f"{tmp_path / 'mine.py'}:judged"])
    assert status == (0 if wrong is None else 1), capsys.readouterr()


def ranges():
    for edges in (PADE.values(), PADE32.values(), *TAYLOR.values()):
        edges = (0, *edges, np.inf)
        yield from zip(edges[:-1], edges[1:])


def test_every_range_of_the_usual_programs_has_a_norm():
    drawn = [
        norm_of(skew(random_params(net, np.random.default_rng(0), float, norm=norm)["Whh.A"]))
        for norm in NORMS
        for net in (NET, replace(NET, hidden=19))
    ]
    stored = [
        norm_of(skew(params["Whh.A"].astype(float)))
        for name, _, params, _ in vectors.catalogue()
        if name.startswith("rnn-expm")
    ]
    for norms in (drawn[::2], drawn[1::2], stored):
        for low, high in ranges():
            assert any(low < norm <= high for norm in norms if norm), (low, high)


def test_bounded_parts_move_and_others_do_not():
    """W stays as large as it was, at every norm."""
    for name in TRANSITIONS:
        net = replace(NET, transition=transition(name))
        for norm in NORMS:
            start, end = (
                random_params(
                    net, np.random.default_rng(0), float, norm=scale, recurrent="orthogonal"
                )
                for scale in (0, norm)
            )
            changed = {key.partition(".")[2] for key in start if (start[key] != end[key]).any()}
            assert changed == (bounded(net) if norm else set())
            small, large = (abs(net.matrices(p)[0]["Whh"]).max() for p in (start, end))
            assert large < 3 * small
    assert {"A"} == bounded(NET) and not bounded(replace(NET, transition=None))


@pytest.mark.needs("torch")
@pytest.mark.usefixtures("unnamed")
def test_the_mistake_of_pytorch_is_found(tmp_path, capsys):
    """Of its function on the command line, and of its parametrisation; if this PyTorch has it."""
    import torch

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
