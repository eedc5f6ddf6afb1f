"""The acid test of frameworks: its adapters, its records, and bugs planted into adapters."""

import json
import signal
from types import SimpleNamespace

import pytest

from benchmarks import acid
from benchmarks.judge.acid.faults import FOLDER, fault, faults
from benchmarks.judge.acid.frameworks import FRAMEWORKS, Framework, Layer, versions
from support.arguments import refused

pytestmark = pytest.mark.needs("flint")

RNN = Layer({"cell": "rnn"}, dtypes=("float64",))
FORM = (3, 4, 2, "last", "")
BUGS = {
    "numpy": ("dh * (1 - h[t + 1] ** 2)", "dh * (1 - h[t] ** 2)"),
    "torch_cells": ("h[1:] if y.ndim == 2 else h[-1]", "h[:-1] if y.ndim == 2 else h[-2]"),
    "numpy_ml": ("cell.backward(step)", "cell.backward(1.001 * step)"),
    "mygrad": ("tanh(a)\n        else", "sigmoid(a)\n        else"),
}
"""What is replaced in an adapter, and by what."""
PACKAGES = {"torch_cells": "torch"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_adapters_change_as_layers_say(name):
    framework = FRAMEWORKS[name]
    for layer in framework.layers.values():
        text = framework.text(layer)
        assert bool(text) == isinstance(framework.adapter, str)
        compile(text, name, "exec")
    assert all(known or package for package, known in versions(framework).items())


def test_what_a_change_replaces_has_to_be_there_once():
    framework = Framework(("numpy",), "numpy", {"rnn": RNN}, (("no such text", ""),))
    with refused("is there 0 times"):
        framework.text(RNN)


@pytest.mark.parametrize(
    "adapter",
    [pytest.param(name, marks=pytest.mark.needs(PACKAGES.get(name, name))) for name in BUGS],
)
def test_a_bug_in_an_adapter_is_found(adapter, monkeypatch):
    """And the adapter without it is right."""
    for changes, verdict in (((), "explained by rounding"), ((BUGS[adapter],), "not rounding")):
        framework = Framework(("numpy",), adapter, {"rnn": RNN}, changes)
        monkeypatch.setitem(FRAMEWORKS, "planted", framework)
        row = acid.judged("planted", acid.Case("rnn", "float64", *FORM))
        assert row["verdict"] == verdict
        assert bool(row.get("where")) == bool(changes)


@pytest.fixture
def small(monkeypatch):
    """A framework of one layer, at two small sizes."""
    monkeypatch.setattr(acid, "FORMS", (FORM, (2, 3, 1, "last", "")))
    monkeypatch.setitem(FRAMEWORKS, "small", Framework(("numpy",), "numpy", {"rnn": RNN}))


def test_only_rows_that_are_missing_or_of_another_version_are_computed(
    small, tmp_path, monkeypatch, capsys
):
    command = ["--alone", "--folder", str(tmp_path), "small"]
    path = acid.path_of("small", tmp_path)
    acid.main(command)
    first = path.read_text()
    assert len(first.splitlines()) == 2 and capsys.readouterr().out.count("explained") == 2
    acid.main(command)
    assert path.read_text() == first and not capsys.readouterr().out
    rows = acid.rows_in(path)
    assert rows[0]["environment"]["processor"] and rows[0]["versions"].keys() == {"numpy"}
    rows[0]["versions"] = {"numpy": "1.0"}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    acid.main(command)
    assert capsys.readouterr().out.count("explained") == 1
    assert sorted(row["T"] for row in acid.rows_in(path)) == [2, 3]


def test_a_process_that_dies_is_a_row_and_the_next_goes_on(small, tmp_path, monkeypatch):
    statuses = iter((-signal.SIGSEGV, -signal.SIGALRM))
    died = lambda *_, **__: SimpleNamespace(returncode=next(statuses))  # noqa: E731
    monkeypatch.setattr(acid.subprocess, "run", died)
    acid.main(["--folder", str(tmp_path), "small"])
    rows = acid.rows_in(acid.path_of("small", tmp_path))
    assert [row["verdict"] for row in rows] == ["crashed"] * 2
    assert [row["note"] for row in rows] == ["SIGSEGV", f"more than {acid.LIMIT} s"]


def test_a_framework_that_is_not_installed_is_said_to_be_missing(tmp_path, monkeypatch, capsys):
    absent = Framework(("no-such-package",), "numpy", {"rnn": RNN})
    monkeypatch.setitem(FRAMEWORKS, "absent", absent)
    acid.main(["--folder", str(tmp_path), "absent"])
    assert capsys.readouterr().out == "absent: no-such-package is not installed\n"
    assert not [*tmp_path.iterdir()]


def test_every_fault_says_all():
    assert len(faults()) == len([*FOLDER.iterdir()]) > 2


def test_a_fault_without_its_tracker_is_refused(tmp_path):
    path = tmp_path / "half.py"
    path.write_text('"""A title\n\npackage: numpy\n\nWhy.\n"""\n\nprint(1)\n')
    with refused("need a title"):
        fault(path)
