"""The cells compiled with Numba."""
