"""The public face: what is there is seen, loads, and has an example that runs."""

import doctest
import sys
from importlib import import_module

import pytest

import refnet
from refnet.tasks.files import folders
from support.arguments import refused
from support.public import FACES, PUBLIC
from support.subprocesses import run_python


@pytest.mark.parametrize("face", FACES)
def test_every_name_loads_and_is_seen(face):
    package = import_module(face)
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert dir(package) == sorted(package.__all__)
    with refused("no attribute 'nothing'", AttributeError):
        package.nothing


def test_packages_are_there_without_an_import_of_their_own():
    code = (
        "import refnet; print(refnet.exact.certify.__name__, refnet.check.compare.__name__, "
        "refnet.transitions.transition.__name__, refnet.analysis.henrici.__name__, "
        "callable(refnet.train))"
    )
    result = run_python(code)
    names = ["certify", "compare", "transition", "henrici", "True"]
    assert result.stdout.split() == names, result.stderr


def test_transitions_are_one_module_under_both_names():
    code = (
        "from refnet.transitions import SVD; import refnet.transitions, refnet, sys; "
        "import refnet.matrices.transitions as same; "
        "assert refnet.transitions is same is sys.modules['refnet.transitions']; "
        "assert SVD is refnet.transitions.SVD"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr


def test_a_printed_net_can_be_read():
    assert repr(refnet.FeedforwardNet((2, 3))) == "FeedforwardNet(widths=(2, 3))"
    for cls in (refnet.RecurrentNet, refnet.StackedNet):
        net = cls(2, 3, 4, activation="prelu")
        sizes = "inputs=2, hidden=3, outputs=4"
        assert repr(net).startswith(f"{cls.__name__}({sizes}, activation=Activation(name='prelu'")
        assert len(repr(net)) < 120


DATA = {"refnet.tasks.mnist.read": "mnist", "refnet.tasks.ptb.lines": "ptb"}


NEEDS = {
    "refnet.check": "flint",
    "refnet.exact": "flint",
    "refnet.training.summary.draw_curves": "matplotlib",
}
"""The extras that examples run, by how their names begin."""


def needs(name):
    return [pytest.mark.needs(NEEDS[start]) for start in NEEDS if name.startswith(start)]


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in sorted(PUBLIC)])
def test_every_function_has_an_example_that_runs(name):
    function = PUBLIC[name]
    if name in DATA and not folders(DATA[name])[0].is_dir():
        pytest.skip(f"needs the data set {DATA[name]}")
    tests = doctest.DocTestFinder(recurse=False).find(
        function, name, globs=dict(vars(sys.modules[function.__module__]))
    )
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in tests:
        runner.run(test)
    failed, attempted = runner.summarize(verbose=False)
    assert attempted > 0, f"{name} has no example"
    assert failed == 0


def test_a_folder_of_that_name_does_not_hide_the_package(tmp_path):
    """As the folder above a clone has one. A path on sys.path, which setup.cfg's package_dir makes
    of an editable installation, comes before a folder without __init__.py; setuptools' own finder
    comes after it."""
    (tmp_path / "refnet").mkdir()
    result = run_python("import refnet; print(refnet.__file__)", cwd=tmp_path)
    assert result.stdout.strip() == refnet.__file__, result.stderr
