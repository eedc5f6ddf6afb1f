"""The recorded measurements, read back."""

import json
from pathlib import Path

__all__ = ["processor", "record"]


def record(name: str) -> dict:
    """What benchmarks/results/NAME.json holds."""
    return json.loads((Path(__file__).parent / "results" / f"{name}.json").read_text())


def processor(machine: str) -> str:
    """The processor of a recorded ``refnet.runs.rows.machine()``.

    >>> processor("znver5 1d191075, Linux x86_64")
    'Zen 5'
    """
    return machine.split()[0].replace("znver", "Zen ")
