"""Certified gradients of nets and of any function in NumPy: rationals and balls as numbers."""

from typing import TYPE_CHECKING

from refnet.common.face import face

if TYPE_CHECKING:
    from refnet.exact.convert import lift as lift
    from refnet.exact.enclose import (
        Certified as Certified,
        Enclosure as Enclosure,
        certify as certify,
    )
    from refnet.exact.functions import (
        CertifiedFunction as CertifiedFunction,
        certify_function as certify_function,
    )
    from refnet.exact.recorder import stop as stop
else:
    __getattr__, __dir__, __all__ = face(
        "refnet.exact",
        {
            "refnet.exact.convert": ("lift",),
            "refnet.exact.enclose": ("Certified", "Enclosure", "certify"),
            "refnet.exact.functions": ("CertifiedFunction", "certify_function"),
            "refnet.exact.recorder": ("stop",),
        },
    )
