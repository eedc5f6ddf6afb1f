"""Folders of golden vectors, each written once; and the judge without its search."""

import pytest

from refnet.check import vectors
from support.vectors import small


def written(tmp_path_factory, name, cases=None):
    folder = tmp_path_factory.mktemp(name)
    vectors.write(folder, cases)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return written(tmp_path_factory, "vectors")


@pytest.fixture
def unnamed(monkeypatch):
    """The judge does not look for a mistake's name, which takes seconds and which is not asked."""
    monkeypatch.setattr("refnet.check.conventions.Readings.explain", lambda *case, **options: "")


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    return written(tmp_path_factory, "few", small("rnn-last", "lstm-last", "rnn-every"))
