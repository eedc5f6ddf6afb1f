"""A net in a file: what is written comes back, and nothing else is taken for it."""

import io
import zipfile
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import refnet
from refnet.maths.activations import ACTIVATIONS
from refnet.nets.backends import changed
from refnet.runs.checkpoint import CheckpointError
from refnet.training import saved
from support.arguments import refused
from support.marks import both_dtypes
from support.oracles import planted

NETS = [
    refnet.RecurrentNet(2, 3, 4),
    refnet.RecurrentNet(
        *(2, 3, 4, "lstm"), gain=0.1, clip_step=1 / 3, learn_h0=True, projection=2, embedding=5
    ),
    refnet.RecurrentNet(2, 4, 3, "gru", gate="softsign", backend="compiled", checkpoint="sqrt"),
    refnet.RecurrentNet(2, 4, 3, activation="elu:alpha=0.3", transition="svd:margin=0.1,soft=2"),
    refnet.StackedNet(
        2, 3, 6, layers=2, bidirectional=True, readout="none", loss="none", reduction="sum"
    ),
    refnet.FeedforwardNet((2, 3, 3, 1), activation="prelu:start=0.7", loss="squared_error"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.npz"


@pytest.mark.parametrize("net", NETS, ids=repr)
@both_dtypes
def test_a_net_comes_back_with_its_parameters(net, dtype, path):
    params = net.init(np.random.default_rng(0), dtype, recurrent="orthogonal")
    refnet.save(path, net, params)
    again = refnet.load(path)
    assert again.net == net and len(repr(again)) < 600 and "array" not in repr(again)
    assert {name: value.tobytes() for name, value in again.params.items()} == {
        name: value.tobytes() for name, value in params.items()
    }
    with np.load(path, allow_pickle=False) as file:  # as any program can read it
        assert set(file.files) == {"meta", *(f"params/{name}" for name in params)}


@pytest.mark.parametrize(
    "net, change",
    [
        (replace(NETS[0], activation=replace(ACTIVATIONS["relu"], name="mine")), {}),
        (replace(NETS[0], activation=replace(ACTIVATIONS["relu"], pull=lambda *a: a)), {}),
        (replace(NETS[0], gain=Fraction(1, 3)), {}),
        (replace(NETS[0], clip_step=float("inf")), {}),
        (NETS[0], {"Whh": np.ones((2, 3), np.float32)}),
        (NETS[0], {"odd": np.ones(3)}),
        (NETS[0], {"by": np.full(4, Fraction(1), object)}),
    ],
)
def test_what_could_not_be_read_back_is_not_written(net, change, path):
    params = NETS[0].init(np.random.default_rng(0))
    with refused(".", (TypeError, ValueError)):
        refnet.save(path, net, params | change)
    assert not path.exists()


def test_damaged_and_foreign_files_are_refused_in_one_line(path, tmp_path):
    refnet.save(path, NETS[1], NETS[1].init(np.random.default_rng(0)))
    whole = path.read_bytes()
    for position in range(0, len(whole), 397):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 255]) + whole[position + 1 :])
        try:
            again = refnet.load(path)
        except ValueError as error:
            assert "\n" not in str(error) and str(path) in str(error)
        else:  # a byte that says nothing, such as a date
            assert again.net == NETS[1]
    foreign = io.BytesIO()
    np.savez(foreign, Whh=np.eye(3))
    for data in (b"", b"no archive", whole[: len(whole) // 2], foreign.getvalue()):
        path.write_bytes(data)
        with refused(r"refnet\.save", CheckpointError):
            refnet.load(path)
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning):
        file.writestr("meta.npy", b"")
    with pytest.raises(CheckpointError):
        refnet.load(path)
    with refused("not a run folder"):
        refnet.load(tmp_path)


def test_a_checkpoint_of_a_run_is_no_saved_net(tmp_path):
    config = refnet.Config("copy:samples=5", length=3, hidden=2, iterations=1, backend="reference")
    refnet.train(config, tmp_path / "run", draw=False)
    with refused("folder", CheckpointError):
        refnet.load(tmp_path / "run" / "checkpoint.npz")


def test_a_planted_bug_is_rejected(path, monkeypatch):
    """Specs without their options bring back another net, which ``save`` notices."""
    wrong = planted(saved._described, "format_spec(name, changed(value))", "name")
    monkeypatch.setattr(saved, "_described", wrong)
    net = NETS[3]
    assert changed(net.transition)
    with refused("without a name"):
        refnet.save(path, net, net.init(np.random.default_rng(0), recurrent="orthogonal"))
