"""Benchmarks and recorded runs; each module's docstring says how it is run.

The process is set up as under the command line: this package is imported before NumPy is.
"""

from refnet.process import settle

settle()
