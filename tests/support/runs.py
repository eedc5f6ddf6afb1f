"""A tiny run, and what its folder holds."""

import json
from functools import partial

import numpy as np

from refnet.training import loop
from refnet.training.config import Config

TINY = Config(
    task="temporal-order:samples=40",
    length=10,
    hidden=6,
    batch=4,
    iterations=30,
    evaluate_every=10,
    optimizer="rmsprop",
    rate=0.01,
    backend="reference",
)
SHORT = "train adding:samples=9 --length 10 --hidden 2 --iterations 1 --backend reference".split()
"""A command that trains for one step."""
train, resume = (partial(work, draw=False) for work in (loop.train, loop.resume))


def same(folder, other):
    """Whether two runs have the same bits and rows."""
    return arrays(folder) == arrays(other) and rows(folder) == rows(other)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def train_for(steps, config, folder):
    """A run that is interrupted after so many steps."""
    count = iter(range(steps))
    return train(config, folder, stop=lambda: next(count, None) is None)


def resumes(config, cut, folder, then=resume):
    """Whether a run that is stopped after ``cut`` steps and goes on ends as one that never was."""
    train(config, folder / "whole")
    train_for(cut, config, folder / "parts")
    then(config, folder / "parts")
    return same(folder / "parts", folder / "whole")


def arrays(folder):
    """Every array and the position of a run's checkpoint; wall times left out."""
    with np.load(folder / "checkpoint.npz") as file:
        held = {name: file[name].tobytes() for name in file.files if name != "meta"}
        position = json.loads(str(file["meta"]))["position"]
    position.pop("seconds")
    position["best"].pop("seconds", None)
    return held, position


def rows(folder):
    return [
        {name: value for name, value in json.loads(line).items() if name != "seconds"}
        for line in (folder / "rows.jsonl").read_text().splitlines()
    ]
