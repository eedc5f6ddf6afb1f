"""What a task gets for its entry in the table, without a test of its own."""

from dataclasses import dataclass

import pytest

from refnet.batch import Batch
from refnet.cli import main
from refnet.runs.rows import read_rows
from refnet.tasks import TASKS
from refnet.tasks.base import Task, stream
from refnet.training.config_files import of_run
from refnet.training.protocols import preset
from support.arguments import refused


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
