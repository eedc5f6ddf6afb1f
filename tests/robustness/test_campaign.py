"""What a run survives, with few trials of each kind; all: ``python -m benchmarks.campaign``."""

import mmap
import os

import pytest

from benchmarks import campaign, fuzz, stopped

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux")
SLOW = ("signals", "together", "memory", "cold starts", "damaged caches")
FEW = {
    "kills": 4,
    "signals": 6,
    "full disks": 2,
    "small file systems": 2,
    "denied": len(stopped.DENIED),
    "two at once": 1,
    "moved": 1,
    "cold starts": 1,
    "together": 1,
    "damaged caches": 3,
    "memory": 400,
    "files": 300,
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
        for name in campaign.PARTS
    ],
)
def test_few_trials(name, tmp_path, monkeypatch):
    if name in ("files", "denied"):
        pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    if name == "small file systems":
        try:
            with stopped.disk(tmp_path, 4096):
                pass
        except OSError as error:
            pytest.skip(f"no file system can be mounted here: {error}")
    result = campaign.PARTS[name][0](FEW[name])
    assert result["trials"] == FEW[name] and result["wrong"] == []


def test_fuzzing_notices_what_it_looks_for(monkeypatch, tmp_path):
    """Planted: a reader that raises something else, one that takes memory, and one that accepts."""

    def failing(path):
        raise KeyError("planted")

    def greedy(path):  # of pages that are new to the process
        return mmap.mmap(-1, 300_000_000).write(bytes(300_000_000))

    data = bytes(range(256))
    kinds = [
        fuzz.Kind("a", data, failing),
        fuzz.Kind("b", data, greedy),
        fuzz.Kind("c", data, lambda path: path.read_bytes(), lambda result: result == data),
    ]
    monkeypatch.setattr(fuzz, "kinds", lambda folder: kinds)
    wrong = fuzz.fuzz(6)["wrong"]
    for sign in ("a: KeyError: 'planted'", "b: ", "c: accepted, and is not what was written"):
        assert any(sign in line for line in wrong), wrong
