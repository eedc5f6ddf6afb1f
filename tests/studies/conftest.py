"""What the tests of studies share."""

import pytest

from refnet.studies.store import Store


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return Store(tmp_path)
