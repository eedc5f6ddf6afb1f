"""A finished or unfinished run, read back from its folder."""

from pathlib import Path

from refnet.common.arguments import FLAG, PATH, takes
from refnet.runs import checkpoint
from refnet.runs.read import contents, json_of, reading
from refnet.runs.rows import Rows
from refnet.tasks import TASKS, Task, make_task
from refnet.tasks.sequences import Encoding
from refnet.training.code import admit
from refnet.training.config import Config
from refnet.training.config_files import of_run
from refnet.training.experiment import build, task_options
from refnet.training.fit import Loaded
from refnet.training.loop import DATA, check_data, counted_rows, identity
from refnet.training.saved import SavedNet, load_net
from refnet.training.steps import Run


@takes(folder=PATH, trust=FLAG)
def load(folder: Path | str, trust: bool = False) -> Loaded | SavedNet:
    """The run in ``folder``: net, parameters, task and rows, to look at or to go on with. Or the
    net and the parameters in a file that ``refnet.save`` wrote.

    Nothing in the folder is changed, and a run that goes on in another process is not disturbed.
    A run on a file of data needs that file for its batches alone: without it, or if it has changed,
    ``predict`` goes by what the folder keeps. ``trust``: run the code that the folder names
    (``FILE.py:NAME``) even if it has changed since the run began, or if you have never used that
    file (``refnet.training.code``).
    Raises FileError or CheckpointError, which name the file, for what cannot be read, ValueError
    for code that may not run.

    >>> from tempfile import TemporaryDirectory
    >>> from refnet import train
    >>> settings = {"length": 20, "hidden": 8, "iterations": 20, "backend": "reference"}
    >>> with TemporaryDirectory() as folder:
    ...     _ = train("temporal-order:samples=50", Path(folder) / "run", **settings)
    ...     run = load(Path(folder) / "run")
    >>> run.params["Whh"].shape
    (8, 8)

    Checked by: tests/training/test_loaded_runs.py::test_load.
    """
    folder = Path(folder)
    if folder.suffix == ".npz" or folder.is_file():
        return load_net(folder, trust)
    return load_run(folder, trust)


def load_run(folder: Path, trust: bool = False) -> Loaded:
    """The run in a folder, as ``load`` gives it.

    >>> load_run(Path("nowhere"))
    Traceback (most recent call last):
    ValueError: nowhere is not a run folder (it has no config.toml); list them with: refnet runs
    """
    config = of_run(folder)
    admit(vars(config), folder / "config.toml", trust)
    experiment = build(config, _task(folder, config))
    path = folder / "checkpoint.npz"
    saved = checkpoint.load(path, identity(config))
    run = Run.from_checkpoint(saved, experiment.optimizer, path)
    rows = Rows.counted(folder / "rows.jsonl", counted_rows(saved, path))[0].rows
    return Loaded(
        folder, config, experiment, run.iteration, run.params, run.best_params, run.best, rows
    )


def _task(folder: Path, config: Config) -> Task | None:
    """The task of a run on data that are no longer there, or have changed; None of any other."""
    path = folder / DATA
    if not path.is_file():
        return None
    name, options = task_options(config)
    try:
        task = make_task(name, **options)
        check_data(folder, task)
        return task
    except (OSError, ValueError) as error:
        reason = f"{error} (if it lies elsewhere now, write its path into {folder / 'config.toml'})"
    with reading(path, "need the file as the run wrote it"):
        facts = json_of(contents(path, 2**28))
        facts.pop("sha256")
        encoding = Encoding(**facts)
    kind = TASKS[name](path=name, **options).kind()
    recorded: Task = kind.recorded(encoding, Path(name).name, reason)
    return recorded
