"""The processor's peak and the memory's bandwidth are what they are called."""

import json
import re
from pathlib import Path

import numba
import numpy as np
import pytest

from benchmarks import machine
from benchmarks.peers import SIZES, demand, placed
from refnet.compiled.vector import BYTES
from support.marks import both_dtypes

RECORD = Path(machine.__file__).parent / "results/roofline.json"
WORDS = {np.float32: "ps", np.float64: "pd"}


@both_dtypes
def test_every_multiply_add_is_made(dtype):
    """Sum n starts at n and becomes (sum + 1) / 2 at every turn."""
    out = np.zeros(2, dtype)
    machine._compute(0, 2, out, 3)
    sums = np.arange(machine.INDEPENDENT, dtype=dtype)
    for _ in range(3):
        sums = (sums + 1) / 2
    assert (out == sums.sum()).all()
    _, operations = machine.peak(dtype, 2, 1e6)
    lanes = BYTES // np.dtype(dtype).itemsize
    assert operations % (2 * 2 * machine.INDEPENDENT * lanes) == 0
    assert 2e6 <= operations < 2e6 + 2 * 2 * machine.INDEPENDENT * lanes


@both_dtypes
def test_multiply_adds_are_fused_and_whole_vectors(dtype):
    kernel = numba.njit(machine._compute.py_func)  # code from the cache cannot be looked into
    kernel(0, 1, np.zeros(1, dtype), 1)
    (code,) = kernel.inspect_asm().values()
    register = {16: "xmm", 32: "ymm", 64: "zmm"}[BYTES]
    if "xmm" not in code:
        pytest.skip("not x86")
    whole = re.findall(rf"vfmadd\d+{WORDS[dtype]}\s+%{register}\d+", code)
    assert len(whole) >= machine.INDEPENDENT
    loop = re.search(rf"(?:\s+vfmadd\d+{WORDS[dtype]}[^\n]*\n){{{machine.INDEPENDENT}}}", code)
    assert loop, "the sums leave their registers"


def test_nothing_recorded_is_above_the_peak():
    """Of the record, so that no test depends on what else a machine does: neither a large product
    nor a step makes more operations a second than the peak of as many cores (steps: of one)."""
    recorded = json.loads(RECORD.read_text())
    peaks = {}
    for row in recorded["limits"]:
        peaks[row["dtype"], row["cores"]] = row["peak, GFLOP/s"]
        assert 0 < row["large product, GFLOP/s"] < row["peak, GFLOP/s"], row
    assert len(peaks) == 4
    for row in recorded["steps"]:
        assert 0 < row["GFLOP/s of the step"] < peaks[row["dtype"], 1], row


def test_the_copy_is_made(monkeypatch):
    monkeypatch.setattr(machine, "COPIED", 2**12)
    arrays = []
    monkeypatch.setattr(
        machine, "aligned", lambda shape, dtype: arrays.append(np.zeros(shape, dtype)) or arrays[-1]
    )
    go, bytes_moved = machine.bandwidth(2)
    go()
    to, source = arrays
    assert (to == 3 * source).all() and (source == 1).all()
    assert bytes_moved == to.nbytes + source.nbytes == 2**13


@pytest.mark.parametrize("cell,gates", [("rnn", 1), ("lstm", 4), ("gru", 3)])
def test_what_a_step_demands(cell, gates):
    """Three products of H + D inputs for every unit, and the tape there and back."""
    T, D, H, B = 7, 2, 9, 5
    wanted = demand((T, D, H, B, cell), "float32")
    assert wanted["operations"] == 3 * 2 * T * B * gates * H * (H + D)
    least = 2 * 4 * (T * B * D + (T + 1) * B * H)
    assert wanted["bytes"] == least if cell == "rnn" else wanted["bytes"] > 2 * least


def test_what_a_feedforward_step_demands():
    """Three products with every matrix but the first, which no gradient goes through."""
    wanted = demand((1, 5, 7, 3, "feedforward"), "float32")
    inner = 9 * 7 * 7 + 7 * 10
    assert wanted["operations"] == 2 * 3 * (3 * inner + 2 * 5 * 7)
    assert wanted["bytes"] == 4 * (5 * (inner + 5 * 7) + 2 * 3 * (5 + 10 * 7 + 10))


def test_a_row_takes_its_place():
    """In the order of SIZES; a row of the same size is replaced."""

    def row(T, D, H, B, cell="rnn", dtype="float32", **more):
        return {"T": T, "D": D, "H": H, "B": B, "cell": cell, "dtype": dtype, **more}

    first, second = row(*SIZES[0]), row(*SIZES[0], dtype="float64")
    gated, last = row(*SIZES[5]), row(*SIZES[-1])
    rows = []
    for new in (last, gated, second, first):
        rows = placed(rows, new)
    assert rows == [first, second, gated, last]
    assert placed(rows, {**gated, "rounds": 3})[2] == {**gated, "rounds": 3}
