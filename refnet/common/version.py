"""The version of refnet, which every other module may import."""

__version__ = "0.2.0"
