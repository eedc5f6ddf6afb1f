"""Where the real data sets are, for the tests that need them."""

import os
from pathlib import Path

import pytest


def real_data(folder):
    """The folder for REFNET_DATA that has the data set ``folder``; skips the test without it."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    place = Path(os.environ.get("REFNET_DATA") or beside)
    if not (place / folder).is_dir():
        pytest.skip(f"no {folder} in {place}: name the data sets' folder in REFNET_DATA")
    return place
