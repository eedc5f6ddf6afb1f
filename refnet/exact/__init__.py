"""Certified gradients: Fraction, fmpq and balls as numbers of the nets."""

from typing import TYPE_CHECKING

from refnet.face import face

if TYPE_CHECKING:
    from refnet.exact.convert import lift as lift
    from refnet.exact.enclose import (Certified as Certified, Enclosure as Enclosure,
                                      certify as certify)
else:
    __getattr__, __dir__, __all__ = face("refnet.exact", {
        "refnet.exact.convert": ("lift",),
        "refnet.exact.enclose": ("Certified", "Enclosure", "certify"),
    })
