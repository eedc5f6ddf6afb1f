"""Bugs that are planted into other programs: explained as a person would want to read it."""

from shutil import which

import numpy as np
import pytest

from benchmarks.judge import planted
from benchmarks.judge.kinds import KINDS, Kind
from refnet.check import judge
from support.drawn import drawn

pytestmark = pytest.mark.needs("flint")

FEW = [
    ("numpy", "df = dc * c[t + 1]"),
    ("numpy", "dW[:, :4] +="),
    ("numpy", "h[:] = h[T]"),
    ("c", "triple(ds(in), kt, e[i])"),
    pytest.param("torch", "v / 1.001", marks=pytest.mark.needs("torch")),
]


def test_every_kind_changes_its_program():
    """And no kind is there twice."""
    texts = [(kind.program, kind.net, planted.text_of(kind)) for kind in KINDS]
    assert len(set(texts)) == len(texts) > 150


@pytest.mark.parametrize("program, new", FEW)
def test_planted_bugs_are_located_and_named(program, new):
    if program == "c" and which("cc") is None:
        pytest.skip("there is no C compiler")
    (kind,) = (kind for kind in KINDS if kind.program == program and new in kind.new)
    rows = list(planted.rows([kind]))
    assert len(rows) == 2 and all(row["located"] and row["named"] == "yes" for row in rows)
    counts = {"kinds": 1, "not rounding": 2, "located": 2, "named": 2, "named wrongly": 0}
    assert planted.summary(rows) == counts


SUM = "np.exp(top).sum(axis=1, keepdims=True)"
NEW = [
    (
        "rnn every",
        SUM,
        "np.exp(top)[:, :-1].sum(axis=1, keepdims=True)",
        "the loss takes the softmax divided by its sum without class 3",
    ),
    (
        "rnn every",
        f"/ {SUM}",
        f"/ ({SUM} + 1e-8)",
        "the loss takes the softmax divided by its sum plus 1e-08",
    ),
    (
        "rnn",
        "dv[n, y] -= 1",
        "dv -= np.where(np.eye(4)[y] > 0, 0.8, 0.05)",
        "the target has -0.2 added for the label and 0.05 for the other classes, though the "
        "gradient is the softmax less it, in the gradient alone",
    ),
    (
        "rnn every",
        "rows, y = h[1:].reshape(T * B, H), y.reshape(-1)",
        "rows, y = h[1:].reshape(T * B, H), np.roll(y, -1, axis=0).reshape(-1); weights[-B:] = 0",
        "the target is that of the step after, and the last one is left out, also of the count",
    ),
    (
        "rnn",
        "T, B, D = x.shape",
        "T, B, D = x.shape; x = (x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1))",
        "the input x is standardized over the steps and the batch",
    ),
    (
        "rnn",
        'v = rows @ p["Why"].T + p["by"]',
        'v = np.tanh(rows @ p["Why"].T + p["by"])',
        "the read-out goes through tanh, though its gradient goes back as usual",
    ),
    (
        "gru",
        "dr = np.concatenate([dr, dz, dn * r], axis=1)",
        "dr = np.concatenate([dz, dr, dn * r], axis=1)",
        "the gates' gradients are taken in the order z, r, n in dWhh and the gradient that is "
        "carried through Whh",
    ),
    (
        "gru",
        "dn = dh * (1 - k) * (1 - n**2)",
        "dh = dh * (1 - k); dn = dh * (1 - n**2)",
        "dh[t+1] is overwritten by dh[t+1] (1 - z) before the gradient of gate z, the gradient "
        "that is carried from h[t+1] to h[t]",
    ),
    ("lstm", "dW += dr.T @ h[t]", "dW += dr.T @ h[T]", "the gradient of Whh takes h[T] for h[t]"),
]


@pytest.mark.parametrize(("words", "old", "new", "said"), NEW)
def test_bugs_in_numpy_have_these_names(words, old, new, said):
    kind = Kind("numpy", words, old, new, "", "")
    net = planted.net_of(kind, 5)
    params, batch = drawn(net, 7, 4, np.float64)
    assert judge(net, planted.program(kind), params, batch).convention == said


def test_a_wrong_name_is_counted(monkeypatch):
    kind = next(kind for kind in KINDS if "c[t + 1]" in kind.new and kind.program == "numpy")
    rows = list(planted.rows([kind._replace(name="something else", where="nowhere")]))
    assert [row["named"] for row in rows] == ["wrongly"] * 2
    assert not any(row["located"] for row in rows)
