"""The book: derivations beside the code that computes them, run and checked as it is built.

``refnet book DIR`` makes a static site of the chapters in ``chapters``; README.md says how to write
one.
"""
