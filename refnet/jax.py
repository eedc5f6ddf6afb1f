"""refnet's nets and layers as functions of JAX; ``refnet.interop`` has a page with examples.

Checked by: tests/interop/test_jax_functions.py.
"""

from refnet.interop.jax_functions import function

__all__ = ["function"]
