"""Judging other implementations: verdicts, adapters, golden vectors, the judge's error rates."""

from importlib import import_module
from typing import Any

__all__ = ["Judgement", "Verdict", "compare"]


def __getattr__(name: str) -> Any:
    # on first use: building the command line's parser does not need the nets
    if name in __all__:
        return getattr(import_module("refnet.check.verdict"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
