"""Runs that go on on another kind of machine: Numba and BLAS compute as for an old processor."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import llvmlite.binding
import numpy as np
import pytest

from refnet.common.process import BLAS_THREADS, starting
from refnet.runs import checkpoint
from refnet.runs.rows import environment, machine
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.loop import identity, resume, train
from refnet.training.steps import ROOM, STEPS, Run, rounding
from support.runs import arrays, rows

OLD = {
    "NUMBA_CPU_NAME": "x86-64",
    "NUMBA_CPU_FEATURES": "+sse,+sse2",
    "OPENBLAS_CORETYPE": "Prescott",
}
"""An x86-64 of 2004, without AVX and FMA: other orders of summation in every product."""
KINDS = {
    "rnn": {"dtype": "float32"},
    "float64": {"dtype": "float64"},
    "large rate": {"dtype": "float32", "optimizer": "sgd", "rate": 0.1},
    "manifold": {"dtype": "float32", "transition": "svd:margin=0.1", "recurrent": "orthogonal"},
    "lstm": {"dtype": "float32", "cell": "lstm", "optimizer": "adam", "rate": 0.001},
}
ELSEWHERE = """
import json, sys
from refnet.training.config import Config
from refnet.training.loop import resume
for folder, settings in json.loads(sys.argv[1]):
    resume(Config(**settings), folder)
"""


def config(kind):
    return Config(
        **{
            "task": "temporal-order:samples=40",
            "length": 20,
            "hidden": 20,
            "batch": 10,
            "iterations": 20,
            "evaluate_every": 10,
            "rate": 0.01,
            "optimizer": "rmsprop",
            **KINDS[kind],
        }
    )


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Runs of 20 steps, and the same for another 10, here and on the old processor."""
    folder = tmp_path_factory.mktemp("moved")
    wanted = []
    for kind in KINDS:
        train(config(kind), folder / kind / "here")
        shutil.copytree(folder / kind / "here", folder / kind / "there")
        resume(replace(config(kind), iterations=20 + STEPS), folder / kind / "here")
        wanted.append(
            (str(folder / kind / "there"), vars(replace(config(kind), iterations=20 + STEPS)))
        )
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps(wanted)], check=True, env=os.environ | OLD
    )
    return folder


def difference(first, other):
    """As rows state it: of the parameter that is most apart, relative to its norm."""
    return max(
        np.linalg.norm(first[name] - other[name]) / (np.linalg.norm(first[name]) or 1)
        for name in first
        if name.startswith("params/")
    )


def held(folder):
    with np.load(folder / "checkpoint.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.mark.skipif("x86" not in machine(), reason="emulates an x86-64")
@pytest.mark.parametrize("kind", KINDS)
def test_another_machine_stays_within_what_the_row_states(elsewhere, kind):
    here, there = elsewhere / kind / "here", elsewhere / kind / "there"
    last = rows(there)[-1]
    assert "NUMBA_CPU_NAME=x86-64" in last["machine"] and "machine" not in rows(here)[-1]
    apart = difference(held(here), held(there))
    assert 0 < apart <= ROOM * last["rounding"], (apart, last["rounding"])
    assert last["rounding"] < 1e-3 and last["rounding_until"] == 20 + STEPS
    assert rows(here)[:-1] == rows(there)[:-1]


def test_what_is_no_rounding_is_beyond_what_is_stated(elsewhere, tmp_path):
    """A machine with a fault: the rate is off by a thousandth."""
    here = elsewhere / "rnn" / "here"
    settings = replace(config("rnn"), rate=0.01001)
    train(config("rnn"), tmp_path / "run")
    experiment = build(config("rnn"))
    saved = checkpoint.load(tmp_path / "run" / "checkpoint.npz", identity(config("rnn")))
    stated = rounding(experiment, Run.from_checkpoint(saved, experiment.optimizer, tmp_path))
    checkpoint.save(tmp_path / "run" / "checkpoint.npz", saved, identity(settings))
    resume(replace(settings, iterations=20 + STEPS), tmp_path / "run")
    assert difference(held(here), held(tmp_path / "run")) > ROOM * stated


def test_a_run_on_another_machine_keeps_what_it_states(elsewhere, tmp_path, monkeypatch):
    """The statement is made once, and stands in every later row, through resumptions."""
    for name, value in OLD.items():
        monkeypatch.setenv(name, value)
    run = shutil.copytree(elsewhere / "rnn" / "there", tmp_path / "run")
    resume(replace(config("rnn"), iterations=50), run)
    assert len({(row["rounding"], row["rounding_until"]) for row in rows(run)[2:]}) == 1
    assert arrays(run)[1]["iteration"] == 50


def test_threads_of_blas_are_of_the_kind_of_machine(monkeypatch):
    for name in BLAS_THREADS:
        monkeypatch.setenv(name, "1")
    first = machine()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert machine() == first + ", OPENBLAS_NUM_THREADS=2"
    with starting():
        assert machine() == first
    assert machine() != first


def test_an_environment_names_what_changes_bits(monkeypatch):
    """A processor with some of its features masked is another one under the same name."""
    before, kind = environment(), machine()
    for features, named in (
        ({"fma": True, "avx2": True, "avx512f": False, "sse": True}, "fma avx2"),
        ({}, ""),
    ):
        monkeypatch.setattr(
            llvmlite.binding, "get_host_cpu_features", lambda: llvmlite.binding.FeatureMap(features)
        )
        assert environment() == {**before, "features": named}
        assert machine() != kind and machine().split()[0] == kind.split()[0]

    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2,-avx512f")
    features = {"fma": True, "avx2": True, "avx512f": True}
    assert environment() == {**before, "features": "fma avx2"}

    def unknown():
        raise RuntimeError("failed to get host cpu features")

    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", unknown)
    assert environment()["features"] == "" and machine().split()[1] == "00000000,"


def test_an_environment_names_what_blas_computes_for():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    known = [
        library.get("architecture")
        for library in threadpoolctl.threadpool_info()
        if "numpy" in library["filepath"]
    ]
    assert environment()["blas"] == (known[0] if known else "")


def test_a_machine_that_compiles_nothing_is_of_another_kind(monkeypatch):
    """Without the compiler there is no fused multiply-add, and other bits."""
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    first = machine()
    for value, kind in (("0", first), ("", first), ("1", first + ", not compiled")):
        monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
        assert machine() == kind
