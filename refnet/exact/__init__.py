"""Certified gradients: Fraction, fmpq and balls as numbers of the nets."""

from refnet.exact.convert import lift
from refnet.exact.enclose import Certified, Enclosure, certify

__all__ = ["Certified", "Enclosure", "certify", "lift"]
