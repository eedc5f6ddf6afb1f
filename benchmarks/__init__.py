"""Measurements: recorded runs, comparisons with other frameworks, and the README's tables."""
