"""An activation: h = a / (1 + a^2).

    refnet train temporal-order --activation mine.py:bump
    refnet prove mine.py:bump

``value(a, p, alpha)`` is h, ``pull(a, h, dh, p, alpha)`` the cotangent of a,
and the gradients of the activation's own parameters p (here none). Use
refnet.maths.numeric for exp, tanh and sqrt of any number type.
"""

from refnet.maths.activations import Activation


def value(a, p, alpha):
    """h = a / (1 + a^2)."""
    return a / (1 + a * a)


def pull(a, h, dh, p, alpha):
    """The cotangent dh (1 - a^2) / (1 + a^2)^2 of a; no parameters."""
    return dh * (1 - a * a) / (1 + a * a) / (1 + a * a), {}


bump = Activation("bump", value, pull, rational=True, smooth=True)
