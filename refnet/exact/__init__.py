"""Number types beyond floats: Dual numbers, Fraction and fmpq, balls; certified gradients."""

from typing import Any

from refnet.exact.convert import lift

__all__ = ["Certified", "Enclosure", "certify", "lift"]


def __getattr__(name: str) -> Any:
    # on first use: the nets import refnet.exact.dual, and enclose imports the nets
    if name in ("Certified", "Enclosure", "certify"):
        from refnet.exact import enclose
        return getattr(enclose, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
