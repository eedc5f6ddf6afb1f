"""Checkpoints: what comes back, and every way in which one can be unusable."""

import json
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from refnet.runs import checkpoint
from refnet.runs.checkpoint import Checkpoint, CheckpointError
from refnet.runs.files import write_atomically
from support.arguments import refused

RUN = Path(__file__).parents[1] / "support/data/run"

CONFIG = {"task": "adding", "rate": 0.1}
SAVED = Checkpoint(
    {
        "params": {"Whh": np.arange(6.0).reshape(2, 3), "f": np.ones((3, 2)).T},
        "optimizer": {"steps": np.asarray(7), "Whh/square": np.float32([1.5])},
        "best": {},
    },
    {"iteration": 7, "loss_sum": 0.1 + 0.2, "best": {"accuracy": None}},
)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "checkpoint.npz"
    checkpoint.save(file, SAVED, CONFIG)
    return file


def test_round_trip_keeps_every_bit(path):
    loaded = checkpoint.load(path, CONFIG)
    assert loaded.position == SAVED.position
    assert loaded.groups.keys() == SAVED.groups.keys()
    for group, values in SAVED.groups.items():
        assert loaded.groups[group].keys() == values.keys()
        for name, value in values.items():
            assert loaded.groups[group][name].dtype == value.dtype
            assert loaded.groups[group][name].tobytes() == value.tobytes()


@pytest.mark.parametrize("run", [None, RUN / "checkpoint.npz"], ids=["new", "recorded"])
def test_the_digest_is_as_the_format_says(path, run):
    """By a reader written from the module's docstring alone."""
    with np.load(run or path) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(str(arrays.pop("meta")))
    claimed = meta.pop("sha256")
    digest = sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        shape = str(arrays[name].shape or (1,))
        digest.update(
            f"{name} {arrays[name].dtype.str} {shape}".encode() + arrays[name].tobytes("C")
        )
    assert digest.hexdigest() == claimed
    assert any(value.shape == () for value in arrays.values())


def test_a_checkpoint_may_have_any_number_of_arrays(path):
    """As a deep net's does: the directory of so many takes more than a megabyte."""
    arrays = {
        f"{name}{number:05}": np.float32([number]) for number in range(9000) for name in ("W", "b")
    }
    checkpoint.save(path, SAVED._replace(groups={**SAVED.groups, "params": arrays}), CONFIG)
    loaded = checkpoint.load(path, CONFIG).groups["params"]
    assert len(loaded) == 18_000 and loaded["b08999"] == 8999


def test_objects_are_refused(tmp_path):
    group = {"Whh": np.array([None])}
    with refused("params/Whh is an array of objects", TypeError):
        checkpoint.save(
            tmp_path / "checkpoint.npz",
            SAVED._replace(groups={**SAVED.groups, "params": group}),
            CONFIG,
        )


def rewrite(path, change):
    """The archive again, with one change to its members."""
    with np.load(path) as file:
        members = {name: file[name] for name in file.files}
    change(members)
    np.savez(path, **members)


def edit_meta(path, change):
    def edit(members):
        meta = json.loads(str(members["meta"]))
        change(meta)
        members["meta"] = np.array(json.dumps(meta))

    rewrite(path, edit)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def flip_bit(path):
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("params/Whh.npy").header_offset
    raw[start + 150] ^= 1
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize(
    "damage, message",
    [
        (truncate, "not a whole refnet checkpoint"),
        (flip_bit, "not a whole refnet checkpoint"),
        (lambda path: path.write_bytes(b""), "not a whole refnet checkpoint"),
        (lambda path: path.write_text("hello"), "not a whole refnet checkpoint"),
        (lambda path: np.savez(path, weights=np.ones(3)), "not a whole refnet checkpoint"),
        (lambda path: np.savez(path, meta=np.array(7)), "not a whole refnet checkpoint"),
        (
            lambda path: np.savez(path, meta=np.array([{"a": 1}], object)),
            "not a whole refnet checkpoint",
        ),
        (lambda path: path.unlink(), "there is no checkpoint"),
        (lambda path: edit_meta(path, lambda m: m.update(format=0)), "checkpoint format 0"),
        (lambda path: edit_meta(path, lambda m: m["position"].update(iteration=8)), "sha256"),
        (lambda path: rewrite(path, lambda m: m["params/Whh"].__setitem__((0, 0), 9.0)), "sha256"),
        (lambda path: rewrite(path, lambda m: m.pop("params/f")), "sha256"),
        (
            lambda path: checkpoint.save(path, SAVED, {**CONFIG, "rate": 0.2}),
            "other settings.*rate",
        ),
    ],
)
def test_unusable_checkpoints_are_refused(path, damage, message):
    damage(path)
    with refused(message, CheckpointError):
        checkpoint.load(path, CONFIG)


@pytest.mark.parametrize("iteration", ["7", 7.0, None, []])
def test_an_iteration_that_is_no_number_is_not_peeked(path, iteration):
    edit_meta(path, lambda meta: meta["position"].update(iteration=iteration))
    with refused("not a whole refnet checkpoint"):
        checkpoint.peek(path)


def test_a_failing_write_keeps_the_old_file(path):
    before = path.read_bytes()

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with refused("disk full", OSError):
        write_atomically(path, fail)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint.npz"]
