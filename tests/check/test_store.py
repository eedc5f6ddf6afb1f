"""Certificates and sigmas on the disk: read only where nothing that decides them differs, bounded,
never unpickled, and never believed when damaged."""

import os
import subprocess
import sys
from collections import UserDict
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from refnet import RecurrentNet, transitions
from refnet.check import certificates, judge, store
from refnet.check.cases import random_batch, random_params, reference_results
from refnet.maths.activations import ACTIVATIONS

pytestmark = pytest.mark.needs("flint")

NET = RecurrentNet(2, 3, 4, "lstm", transition=transitions.transition("cayley"))
PARAMS = random_params(NET, np.random.default_rng(0), np.float32)
BATCH = random_batch(NET, np.random.default_rng(1), np.float32, 4, 2)
X = np.linspace(-1, 1, 5)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REFNET_JUDGE_CACHE", str(tmp_path / "judge"))
    monkeypatch.setattr(certificates, "WORTH", -1.0)
    forget()
    yield tmp_path / "judge"
    forget()


def forget():
    for cached in (certificates.certificate, certificates.sigma_of, certificates.readings_of):
        cached.cache_clear()


@pytest.fixture
def computed(monkeypatch):
    """How often a certificate or a sigma is computed, not read."""
    count = {"certify": 0, "certify_function": 0, "spread": 0}
    for name in count:
        right = getattr(certificates, name)

        def counting(*arguments, right=right, name=name, **options):
            count[name] += 1
            return right(*arguments, **options)

        monkeypatch.setattr(certificates, name, counting)
    return count


def test_a_net_is_found_again(computed, cache_folder):
    theirs = reference_results(NET, PARAMS, BATCH)
    first = judge(NET, theirs, PARAMS, BATCH)
    assert computed == {"certify": 1, "certify_function": 0, "spread": 1}
    forget()
    again = judge(replace(NET), theirs, PARAMS, BATCH)
    assert computed == {"certify": 1, "certify_function": 0, "spread": 1}
    assert again == first and len(list(cache_folder.iterdir())) == 2
    wrong = {**theirs, "dx": theirs["dx"] * 2}
    assert judge(NET, wrong, PARAMS, BATCH).convention == "dx is doubled"


@pytest.mark.parametrize(
    "change",
    [
        lambda: (replace(NET, reduction="sum"), PARAMS, BATCH),
        lambda: (NET, {**PARAMS, "by": PARAMS["by"] + 1}, BATCH),
        lambda: (NET, PARAMS, BATCH._replace(x=2 * BATCH.x)),
        lambda: (replace(NET, transition=transitions.transition("orthogonal")), None, BATCH),
    ],
)
def test_another_case_is_another(change, computed):
    judge(NET, {}, PARAMS, BATCH)
    forget()
    net, params, batch = change()
    rng = np.random.default_rng(0)
    params = params or random_params(net, rng, np.float32, recurrent="orthogonal")
    judge(net, {}, params, batch)
    assert computed["certify"] == 2


@pytest.mark.parametrize("kind", [UserDict, MappingProxyType])
def test_parameters_in_another_mapping_decide_too(kind, computed):
    for scale in (1, 1 + 1e-12):  # whose texts are the same
        params = {name: value.astype(float) * scale for name, value in PARAMS.items()}
        assert judge(NET, reference_results(NET, params, BATCH), kind(params), BATCH).passed
    assert computed["certify"] == 2


def test_what_is_hashed_is_told_apart():
    """The type, the shape, and where a table ends decide."""
    for first, second in (
        (np.ones(2), np.ones(2, np.float32)),
        (np.ones((2, 3)), np.ones((3, 2))),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "c": 2}),
        ([np.arange(2000.0)], [np.arange(2000.0) + (np.arange(2000) == 1000)]),
        (np.array([10**30, 1], object), np.array([10**30, 2], object)),
    ):
        assert store.digest_of(first) == store.digest_of(first) != store.digest_of(second)


SCALE = {"scale": 2.0}


def test_a_function_is_certified_at_each_call(computed, cache_folder, monkeypatch):
    """What it takes from outside may differ."""

    def scaled(x):
        return (x * SCALE["scale"]).sum()

    for scale in (2.0, 3.0):
        monkeypatch.setitem(SCALE, "scale", scale)
        assert judge(scaled, {"dx": np.full(5, scale)}, X).passed
    assert computed["certify_function"] == 2 and not cache_folder.exists()


class Doubled(RecurrentNet):
    def forward(self, params, x, mask=None):
        outputs, tape = super().forward(params, x, mask)
        return 2 * outputs, tape


SOFTSIGN = replace(ACTIVATIONS["softsign"], name="tanh")


@pytest.mark.parametrize(
    "net", [RecurrentNet(2, 3, 4, activation=SOFTSIGN), Doubled(2, 3, 4)], ids=["activation", "net"]
)
def test_what_is_not_of_refnet_is_not_stored(net, computed, cache_folder):
    """Its text is that of another net."""
    params = random_params(net, np.random.default_rng(0), np.float32)
    for judged in (RecurrentNet(2, 3, 4), net):
        judge(judged, {}, params, BATCH)
        assert len(list(cache_folder.iterdir())) == 2
    assert computed["certify"] == 2


def test_a_damaged_file_is_made_again(computed, cache_folder):
    judge(NET, {}, PARAMS, BATCH)
    for path in cache_folder.iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    forget()
    assert not judge(NET, {}, PARAMS, BATCH).passed
    assert computed["certify"] == 2 == computed["spread"]
    for path in cache_folder.iterdir():
        path.write_bytes(b"no file of ours")
    forget()
    judge(NET, {}, PARAMS, BATCH)
    assert computed["certify"] == 3


def test_changed_numbers_are_not_believed(computed, cache_folder):
    """A whole .npz file with other numbers than its digest says."""
    judge(NET, {}, PARAMS, BATCH)
    for path in cache_folder.iterdir():
        with np.load(path) as file:
            arrays = dict(file)
        name = next(name for name in arrays if name != "digest")
        np.savez(path, **{**arrays, name: arrays[name] + 1})
    forget()
    judge(NET, {}, PARAMS, BATCH)
    assert computed["certify"] == 2 == computed["spread"]


def test_nothing_is_unpickled(cache_folder):
    cache_folder.mkdir()
    path = store._path("x")
    np.savez(path, digest=np.array([object()]), allow_pickle=True)
    assert store.read("x") is None


def test_the_folder_is_bounded(cache_folder, monkeypatch):
    arrays = {"x": np.zeros(1000)}
    store.write("first", arrays)
    size = store._path("first").stat().st_size
    monkeypatch.setattr(store, "MOST", 3 * size)
    for n, name in enumerate(("second", "third")):
        store.write(name, arrays)
        os.utime(store._path(name), (n + 1, n + 1))
    assert store.read("first") is not None  # used now
    store.write("fourth", arrays)
    present = [name for name in ("first", "second", "third", "fourth") if store.read(name)]
    assert present == ["first", "third", "fourth"]
    monkeypatch.setattr(store, "LARGEST", 100)
    store.write("large", arrays)
    assert store.read("large") is None


def test_no_folder_is_needed(computed, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("off", str(tmp_path / "file" / "folder"), "/proc/none"):
        monkeypatch.setenv("REFNET_JUDGE_CACHE", place)
        forget()
        assert judge(NET, reference_results(NET, PARAMS, BATCH), PARAMS, BATCH).passed
    assert computed["certify"] == 3


def test_another_process_reads_it(cache_folder, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from refnet import Batch, RecurrentNet\n"
        "from refnet.check import certificates, judge\n"
        "certificates.WORTH = -1\n"
        "net = RecurrentNet(1, 2, 2)\n"
        "batch = Batch(np.ones((2, 1, 1)), np.array([1]))\n"
        "print(judge(net, {}, net.init(np.random.default_rng(0)), batch).worst.z)\n"
    )
    inodes = []
    for _ in range(2):
        subprocess.run([sys.executable, str(tmp_path / "mine.py")], check=True, cwd=os.getcwd())
        inodes.append({path.stat().st_ino for path in cache_folder.iterdir()})
    assert inodes[0] == inodes[1] and len(inodes[0]) == 2
