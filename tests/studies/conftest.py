"""What the tests of studies share."""

import pytest

from refnet.studies.store import Store
from support.studies import make, tiny_study


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return Store(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    assert make(tiny_study(), store) == {}
    return store
