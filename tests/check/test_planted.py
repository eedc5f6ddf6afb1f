"""Bugs that are planted into other programs: explained as a person would want to read it."""

from shutil import which

import pytest

from benchmarks.judge import planted
from benchmarks.judge.kinds import KINDS

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


def test_a_wrong_name_is_counted(monkeypatch):
    kind = next(kind for kind in KINDS if "c[t + 1]" in kind.new and kind.program == "numpy")
    rows = list(planted.rows([kind._replace(name="something else", where="nowhere")]))
    assert [row["named"] for row in rows] == ["wrongly"] * 2
    assert not any(row["located"] for row in rows)
