"""Folders of golden vectors, each written once for a module's tests."""

import pytest

from refnet.check import vectors
from support.vectors import small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    made = tmp_path_factory.mktemp("vectors")
    vectors.write(made)
    return made


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    pytest.importorskip("flint", reason="python-flint (extra certify) is not installed")
    made = tmp_path_factory.mktemp("few")
    vectors.write(made, small("rnn-last", "lstm-last", "rnn-every"))
    return made
