"""A run on a file of data answers for new sequences from its folder alone."""

import numpy as np
import pytest

from refnet import load, train
from refnet.cli import main
from refnet.tasks import Arrays
from support.arguments import refused

QUICK = {"hidden": 4, "iterations": 4, "evaluate_every": 2, "backend": "reference", "batch": 8}


def table(path, shift=0.0):
    """Sequences of 3 to 6 steps with two features, whose class is a word."""
    rng = np.random.default_rng(0)
    lines = ["id,a,b,target"]
    for n in range(30):
        for a, b in rng.normal(size=(3 + n % 4, 2)) + n % 2 * 3 + shift:
            lines.append(f"s{n},{a},{b},{'high' if n % 2 else 'low'}")
    path.write_text("\n".join(lines) + "\n")


def arrays(path, shift=0.0):
    """Real targets at every step."""
    x = np.random.default_rng(1).normal(size=(30, 5, 2)) + shift
    np.savez(path, x=x, y=x.sum(axis=2) * 100, lengths=np.tile([5, 4, 3], 10))


def text(path, shift=0.0):
    path.write_text(("the cat sat. " if shift else "the dog ran. ") * 60)


KINDS = [("a.csv", table, {}), ("a.npz", arrays, {}), ("a.txt", text, {"length": 10})]
NEW = [np.ones((5, 2)), np.zeros((2, 2))]


@pytest.mark.parametrize("name, write, settings", KINDS)
def test_without_the_file_and_with_another_one(tmp_path, name, write, settings):
    path, folder = tmp_path / name, tmp_path / "run"
    write(path)
    new = [list("the dog"), list("ran")] if write is text else NEW
    if write is text:
        path = f"{path}:length={settings['length']}"
    train(str(path), folder, draw=False, **QUICK)
    run = load(folder)
    asked = [{}] if write is arrays else [{}, {"probabilities": True}]
    want = [run.predict(new, **each) for each in asked]
    assert next(run.task.evaluation(0, 0)).x.shape[2:] == (() if write is text else (2,))
    for change, reason in ((lambda: write(tmp_path / name, 2.0), "began with other data"),
                           ((tmp_path / name).unlink, "there is no file")):  # fmt: skip
        change()
        run = load(folder)
        for each, before in zip(asked, want, strict=True):
            for got, was in zip(run.predict(new, **each), before, strict=True):
                assert np.array_equal(got, was)
        with refused(f"{reason}.*write its path into .*config.toml"):
            run.task.batch(0, 2, 0)
        with refused(reason):
            run.task.evaluation(0, 0)
        assert name in repr(run) and run.task.metric in run.best


def test_a_planted_new_scaling_is_rejected(tmp_path, monkeypatch):
    """A run that takes the means of the changed file."""
    monkeypatch.setattr("refnet.training.load.check_data", lambda folder, task: None)
    with pytest.raises(AssertionError):
        test_without_the_file_and_with_another_one(tmp_path, *KINDS[0])


def test_a_moved_file_is_named_in_the_configuration(tmp_path, capsys):
    path, folder = tmp_path / "a.csv", tmp_path / "run"
    table(path)
    train(str(path), folder, draw=False, **QUICK)
    (tmp_path / "data").mkdir()
    path.rename(tmp_path / "data" / "a.csv")
    assert main(["analyse", str(folder)]) == 2 and "write its path" in capsys.readouterr().err
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("a.csv", "data/a.csv"))
    assert load(folder).task.batch(0, 2, 0).x.shape[1:] == (2, 2)


def test_what_predict_refuses():
    x = [np.full((length, 1), length % 2.0) for length in (3, 4, 5, 6) * 4]
    real = train(Arrays(x, [len(each) / 2 for each in x]), hidden=4, iterations=2)
    assert real.predict(x[:3]).shape == (3, 1)
    with refused("need classes"):
        real.predict(x, probabilities=True)
    with refused("2 features a step; need 1"):
        real.predict(NEW)
    copy = train("copy", length=10, hidden=4, iterations=1, evaluate_every=1)
    with refused("not of your own data; need run.net.predict"):
        copy.predict(x)
