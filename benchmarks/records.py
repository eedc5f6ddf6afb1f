"""The recorded measurements, read back."""

import json
from pathlib import Path

__all__ = ["record"]


def record(name: str) -> dict:
    """What benchmarks/results/NAME.json holds."""
    return json.loads((Path(__file__).parent / "results" / f"{name}.json").read_text())
