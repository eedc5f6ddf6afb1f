"""Certified gradients of nets and of any function in NumPy: rationals and balls as numbers."""

from typing import TYPE_CHECKING

from refnet.common.face import face

if TYPE_CHECKING:
    from refnet.exact.convert import lift as lift
    from refnet.exact.enclose import Certified as Certified, certify as certify
    from refnet.exact.functions import (
        CertifiedFunction as CertifiedFunction,
        certify_function as certify_function,
    )
    from refnet.exact.precision import Enclosure as Enclosure
    from refnet.exact.recorder import stop as stop
else:
    __getattr__, __dir__ = face(__name__, __file__)
