"""The notebook runs from its first cell to its last, and shows a picture."""

import ast
import json
from pathlib import Path

import pytest

import refnet

NOTEBOOK = Path(refnet.__file__).parent / "training" / "from-csv-to-picture.ipynb"


def shown(cell, names):
    """Run a cell; the value of the expression at its end, which a notebook shows."""
    *statements, last = ast.parse(cell).body
    end = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
    body = statements if end else [*statements, last]
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(end, "cell", "eval"), names) if end else None


@pytest.mark.needs("matplotlib")
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    names = {}
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    _, run, score, classes, net, predicted = [shown(cell, names) for cell in code]
    assert run._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n" and len(repr(run)) < 300
    assert score[0] > 0.8 and list(classes) == ["slow", "fast"]
    assert net == run.net and (predicted == names["batch"].y[:10]).mean() >= 0.8
