"""The public face: what is there is seen, loads, has an example that runs, and has types."""

import ast
import doctest
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import refnet

FACES = ("refnet", "refnet.analysis", "refnet.check", "refnet.exact", "refnet.tasks",
         "refnet.matrices.transitions")
MADE_BY_CLIENTS = ("Batch", "Config", "FeedforwardNet", "RecurrentNet")
"""The other classes are what functions return."""
CALLED = [(face, name) for face in FACES for name in import_module(face).__all__
          if inspect.isfunction(getattr(import_module(face), name)) or name in MADE_BY_CLIENTS]


@pytest.mark.parametrize("face", FACES)
def test_every_name_loads_and_is_seen(face):
    package = import_module(face)
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing


@pytest.mark.parametrize("face", ["refnet", "refnet.analysis", "refnet.check", "refnet.exact"])
def test_nothing_else_is_seen(face):
    assert dir(import_module(face)) == import_module(face).__all__


@pytest.mark.parametrize("face", ["refnet", "refnet.analysis", "refnet.check", "refnet.exact"])
def test_type_checkers_see_the_same_names(face):
    tree = ast.parse(Path(import_module(face).__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    names = {alias.asname for node in block.body for alias in node.names}
    assert sorted(names) == import_module(face).__all__


def test_packages_are_there_without_an_import_of_their_own():
    code = ("import refnet; print(refnet.exact.certify.__name__, refnet.check.compare.__name__, "
            "refnet.transitions.transition.__name__, refnet.analysis.henrici.__name__, "
            "callable(refnet.train))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.split() == ["certify", "compare", "transition", "henrici", "True"], (
        found.stderr)


@pytest.mark.parametrize("face, name", CALLED)
def test_every_function_has_an_example_that_runs(face, name):
    if face in ("refnet.check", "refnet.exact"):
        pytest.importorskip("flint")
    function = getattr(import_module(face), name)
    tests = doctest.DocTestFinder(recurse=False).find(
        function, name, globs=dict(vars(sys.modules[function.__module__])))
    runner = doctest.DocTestRunner()
    result = [runner.run(test) for test in tests]
    assert sum(one.attempted for one in result) > 0, f"{face}.{name} has no example"
    assert sum(one.failed for one in result) == 0


CLIENT = """
import numpy as np
import refnet

net = refnet.RecurrentNet(inputs=2, hidden=3, outputs=2)
params = net.init(np.random.default_rng(0))
batch = refnet.Batch(np.ones((4, 1, 2), np.float32), np.zeros(1, int))
reveal_type(net)
reveal_type(refnet.loss_and_gradients(net, params, batch).gradients)
reveal_type(refnet.exact.certify(net, params, batch))
reveal_type(refnet.check.compare)
reveal_type(refnet.transitions.transition("svd"))
reveal_type(refnet.analysis.spectral_radius(params["Whh"]))
reveal_type(refnet.train)
refnet.nothing
"""
SEEN = ("refnet.nets.recurrent.RecurrentNet", "dict[", "refnet.exact.enclose.Certified",
        "def (theirs: ", "refnet.matrices.slots.Transition", "float",
        "def (config: refnet.training.config.Config")


def test_a_client_sees_types(tmp_path):
    """Also that a name which is not there is an error."""
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    root = Path(refnet.__file__).parent.parent
    found = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file",
                            str(root / "setup.cfg"), str(client)],
                           capture_output=True, text=True, cwd=root).stdout
    revealed = [line.split("Revealed type is ", 1)[1] for line in found.splitlines()
                if "Revealed type" in line]
    assert len(revealed) == len(SEEN), found
    for have, need in zip(revealed, SEEN):
        assert need in have
    errors = [line for line in found.splitlines() if "error:" in line]
    assert len(errors) == 1 and 'no attribute "nothing"' in errors[0], found
