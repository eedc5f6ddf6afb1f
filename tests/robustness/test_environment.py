"""Settings of the environment that are wrong: the run is made, or refused in one line, and then
nothing is left behind."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from refnet.training import loop, steps
from refnet.training.config import Config
from support.arguments import refused
from support.subprocesses import run

NOT_NEEDED = [  # and the lines that are said of them
    (
        {
            "NUMBA_THREADING_LAYER": "tbb",
            "NUMBA_THREADING_LAYER_PRIORITY": "none",
            "NUMBA_NUM_THREADS": "0",
            "NUMBA_OPT": "none",
            "NUMBA_LOOP_VECTORIZE": "none",
        },
        2,
    ),
    (
        {
            "BACKEND": "reference",
            "NUMBA_NUM_THREADS": "many",
            "OPENBLAS_NUM_THREADS": "many",
            "OMP_NUM_THREADS": "-1",
            "MPLBACKEND": "none",
            "MATPLOTLIBRC": "/none",
            "REFNET_DATA": "/none",
            "COLUMNS": "wide",
            "LINES": "-1",
            "LANG": "none",
            "LC_ALL": "none",
            "TERM": "none",
            "TMPDIR": "/none",
            "TZ": "none",
            "HOME": "/none",
            "XDG_CACHE_HOME": "/dev/null",
            "NUMBA_CACHE_DIR": "/dev/null",
            "NUMBA_DISABLE_JIT": "1",
        },
        0,
    ),
]
REFUSED = [({"NUMBA_CPU_FEATURES": "avx2"}, 1)]


def train(folder, variables):
    """A short run there, without Matplotlib, which says several lines of folders that it cannot
    use."""
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from refnet.__main__ import main; sys.exit(main())"
    )
    words = "train temporal-order:samples=20 --length 10 --hidden 4 --iterations 2 --quiet".split()
    words += ["--out", folder, "--backend", variables.get("BACKEND", "compiled")]
    return run(["-c", code, *words], None, variables)


@pytest.mark.skipif(os.name != "posix", reason="the names are POSIX's")
def test_a_wrong_setting_is_ignored_or_refused_in_one_line(tmp_path):
    settings = [*NOT_NEEDED, *REFUSED]
    folders = [tmp_path / str(number) / "run" for number in range(len(settings))]
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(train, folders, [variables for variables, _ in settings]))
    for folder, (variables, count), done in zip(folders, settings, ended):
        lines = done.stderr.splitlines()
        assert all(map(str.isprintable, lines)) and "Traceback" not in done.stderr
        assert len(lines) == count, done.stderr
        if (variables, count) in REFUSED:
            assert done.returncode == 2 and all(name in done.stderr for name in variables)
            assert not folder.parent.exists()
        else:
            assert done.returncode == 0, done.stderr
            assert (folder / "summary.json").exists()


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize(
    "place",
    [
        "loss_and_gradients",
        "Optimizer.step",
        "Experiment.clip",
        "TemporalOrder.batch",
        "Experiment.start",
    ],
)
@pytest.mark.parametrize("error", [MemoryError, ValueError, KeyError])
def test_what_refuses_the_first_step_leaves_no_folder(tmp_path, monkeypatch, place, backend, error):
    """The compiler, the memory, the threads: whatever it is, there is not even a folder that is
    being made, as the system may abort the process."""

    def refuse(*arguments, **options):
        assert not any(tmp_path.iterdir())
        raise error("refused")

    from refnet.tasks.synthetic import TemporalOrder
    from refnet.training.experiment import Experiment
    from refnet.training.optimizers import Optimizer

    home, _, name = place.rpartition(".")
    classes = {"Optimizer": Optimizer, "Experiment": Experiment, "TemporalOrder": TemporalOrder}
    monkeypatch.setattr(classes[home] if home else steps, name, refuse)
    config = Config("temporal-order:samples=20", length=10, hidden=4, backend=backend)
    with refused("refused", error):
        loop.train(config, tmp_path / "deep" / "run")
    assert not any(tmp_path.iterdir())
