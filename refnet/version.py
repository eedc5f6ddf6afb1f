"""The version of refnet, below everything that records it."""

__version__ = "0.1.0"
