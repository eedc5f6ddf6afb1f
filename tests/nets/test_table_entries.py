"""What a task gets for its entry in the table, without a test of its own."""

from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.cells import CELLS
from refnet.cli import main
from refnet.compiled.activations import settings
from refnet.maths.activations import Activation
from refnet.runs.rows import read_rows
from refnet.tasks import TASKS, options
from refnet.tasks.base import Task, stream
from refnet.tasks.files import folders
from refnet.training.config import of_run
from refnet.training.protocols import preset
from support.arguments import refused


@pytest.mark.parametrize("name", sorted(TASKS))
def test_batches_are_what_a_task_declares(name):
    """A function of the seed and the index alone, of the declared widths and types."""
    home = TASKS[name].__module__.rpartition(".")[2]
    if home in ("mnist", "ptb") and not folders(home)[0].is_dir():
        pytest.skip(f"needs the data set {home}")
    task = TASKS[name]()
    assert task.name == name and "dtype" in options(name)
    batch, again, other = task.batch(7, 20, 5), TASKS[name]().batch(7, 20, 5), task.batch(8, 20, 5)
    assert batch.x.tobytes() == again.x.tobytes() and batch.y.tobytes() == again.y.tobytes()
    assert batch.x.tobytes() != other.x.tobytes()
    assert batch.x.dtype == task.dtype and batch.x.shape[-1] == task.inputs
    assert batch.x.shape[-2] == 20 and batch.x.ndim == (2 if task.readout == "none" else 3)
    steps = batch.x.shape[:-1] if task.readout == "every" else (20,)
    if task.loss == "cross_entropy":
        assert batch.y.shape == steps and batch.y.dtype.kind in "iu"
        assert 0 <= batch.y.min() and batch.y.max() < task.outputs
    else:
        assert batch.y.shape == (*steps, task.outputs) and batch.y.dtype == task.dtype


@dataclass(frozen=True)
class Signs(Task):
    """Whether the numbers of a sequence, or of an image, have a positive sum."""

    readout: str = "last"
    dtype: str = "float32"

    name, inputs, outputs, loss, splits = "signs", 1, 2, "cross_entropy", ("test",)
    metric, lower_is_better, criterion = "accuracy", False, "none"

    def batch(self, index, size, seed):
        x = stream(seed, index).standard_normal((6, size, 1)).astype(self.dtype)
        return Batch(
            x[0] if self.readout == "none" else x,
            (x[: 1 if self.readout == "none" else 6].sum(axis=(0, 2)) > 0).astype(int),
        )

    def evaluation(self, index, seed, split="test"):
        yield self.batch(10**6 + index, 500, seed)

    def score(self, outputs, batch):
        return {"right": float((outputs.argmax(axis=1) == batch.y).sum()), "of": len(batch.y)}

    def metrics(self, totals):
        return {"accuracy": totals["right"] / totals["of"]}


@pytest.mark.parametrize("readout", ["last", "none"])
def test_a_task_without_a_protocol_trains(readout, tmp_path, monkeypatch, capsys):
    """Its entry in the table is enough for the command, which finds the net that it is for."""
    monkeypatch.setitem(TASKS, "signs", Signs)
    monkeypatch.setattr("refnet.training.loop.draw_curves", lambda *ask: None)
    task, folder = f"signs:readout={readout}", tmp_path / "run"
    words = f"train {task} --iterations 200 --quiet --backend reference --out".split()
    assert main([*words, str(folder)]) == 0
    config = of_run(folder)
    assert (config.protocol, config.optimizer) == ("refnet/default", "adam")
    assert config.net == ("feedforward" if readout == "none" else "recurrent")
    assert read_rows(folder / "rows.jsonl")[-1]["accuracy"] > 0.9  # a guess is right at half
    assert preset("copy", protocol="refnet/default").optimizer == "adam"
    with refused("has no task signs.*; for signs choose refnet/default"):
        preset("signs", protocol="vorontsov/text")


def test_every_cell_says_what_it_is():
    for name, cell in CELLS.items():
        assert cell is import_module(f"refnet.cells.{name}") and cell.CANDIDATE in cell.GATES


def test_an_activation_need_not_be_compiled():
    new = Activation("square", lambda a, p, alpha: a * a, lambda a, h, dh, p, alpha: (2 * a, {}))
    with refused("activation square has no compiled kernel; use backend"):
        settings(new, np.dtype("f4"))
