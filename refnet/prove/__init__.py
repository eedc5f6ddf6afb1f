"""Proofs of an entry of a table, the package's or your own: ``refnet prove mine.py:NAME``."""
