"""Recurrent cells: each a file with its forward and, directly beneath, its backward pass."""
