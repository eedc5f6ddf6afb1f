"""What a cell, a transition or a task gets for its entry in a table, without a test of its own."""

from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest

from refnet.batch import Batch
from refnet.cells import CELLS
from refnet.cli import main
from refnet.compiled.activations import settings
from refnet.maths.activations import Activation
from refnet.maths.dual import dual_array, parts
from refnet.matrices.initializers import initialize
from refnet.matrices.transitions import TRANSITIONS
from refnet.runs.rows import read_rows
from refnet.tasks import TASKS
from refnet.tasks.base import Task, stream
from refnet.tasks.files import folders
from refnet.training.config import of_run
from refnet.training.protocols import preset
from support.arguments import refused
from support.rational import RATIONAL_GATE, SOFTSIGN, generic
from support.transitions import CONSTANT, complex_step_error, push_minus_pull

T, B, D, H = 2, 1, 2, 2


@pytest.mark.parametrize("name", sorted(CELLS))
def test_a_cell_is_exact_on_fractions(name):
    """``<w, J v> == <J' w, v>`` for its states, the push by dual numbers. Every array has a share
    in the sum, so that a factor of 1.001 in its gradient would show."""
    cell, rng = CELLS[name], np.random.default_rng(0)
    G, gate = len(cell.GATES), {} if len(cell.GATES) == 1 else {"gate": RATIONAL_GATE}
    shapes = {key: value.shape for key, value in cell.init(H).items()}
    shapes |= dict.fromkeys(cell.OPTIONAL, (H,))
    shapes |= {
        "Whh": (G * H, H),
        "Wxh": (G * H, D),
        "x": (T, B, D),
        "h0": (B, H) if cell.STATES == 1 else (cell.STATES, B, H),
    }
    at, v = ({key: generic(rng, shape) for key, shape in shapes.items()} for _ in range(2))
    dh = generic(rng, (2, B, H))
    lifted = {key: dual_array(value, v[key]) for key, value in at.items()}
    pushed = parts(cell.forward(lifted, lifted["x"], lifted["h0"], SOFTSIGN, **gate).h)[1]
    tape = cell.forward(at, at["x"], at["h0"], SOFTSIGN, **gate)
    pulled = cell.backward(at, tape, dh, SOFTSIGN, **gate)
    shares = {key: (pulled[key] * v[key]).sum() for key in at}
    assert (pushed[-2:] * dh).sum() == sum(shares.values())
    assert all(shares.values())


@pytest.mark.parametrize("name", sorted(TRANSITIONS))
def test_a_transition_is_pulled_back_exactly(name):
    """With its default options: on fractions, or else by the complex step, to 1000 eps."""
    made, rng = TRANSITIONS[name](), np.random.default_rng(1)
    start = made.init(initialize("orthogonal", (4, 4), rng))
    shapes = {part: np.shape(value) for part, value in start.items()}
    assert shapes == made.shapes(4, 4)
    if made.rational:
        at = {part: generic(rng, shape) for part, shape in shapes.items()}
        v = {part: generic(rng, shape) * (part not in CONSTANT) for part, shape in shapes.items()}
        assert push_minus_pull(made, at, v, generic(rng, (4, 4))) == 0
        return
    at = {
        part: value if part in CONSTANT else value + 0.3 * rng.normal(size=np.shape(value))
        for part, value in start.items()
    }
    v = {part: rng.normal(size=shape) * (part not in CONSTANT) for part, shape in shapes.items()}
    assert complex_step_error(made, at, v, rng.normal(size=(4, 4))) <= 1000


@pytest.mark.parametrize("name", sorted(TASKS))
def test_batches_are_what_a_task_declares(name):
    """A function of the seed and the index alone, of the declared widths and types."""
    home = TASKS[name].__module__.rpartition(".")[2]
    if home in ("mnist", "ptb") and not folders(home)[0].is_dir():
        pytest.skip(f"needs the data set {home}")
    task = TASKS[name]()
    one, again, other = task.batch(7, 20, 5), TASKS[name]().batch(7, 20, 5), task.batch(8, 20, 5)
    assert one.x.tobytes() == again.x.tobytes() and one.y.tobytes() == again.y.tobytes()
    assert one.x.tobytes() != other.x.tobytes()
    assert one.x.dtype == task.dtype and one.x.shape[-1] == task.inputs
    assert one.x.shape[-2] == 20 and one.x.ndim == (2 if task.readout == "none" else 3)
    steps = one.x.shape[:-1] if task.readout == "every" else (20,)
    if task.loss == "cross_entropy":
        assert one.y.shape == steps and one.y.dtype.kind in "iu"
        assert 0 <= one.y.min() and one.y.max() < task.outputs
    else:
        assert one.y.shape == (*steps, task.outputs) and one.y.dtype == task.dtype


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
    assert (
        main(
            [
                "train",
                task,
                "--iterations",
                "200",
                "--quiet",
                "--backend",
                "reference",
                "--out",
                str(folder),
            ]
        )
        == 0
    )
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
