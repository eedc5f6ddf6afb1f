"""Mistakes as edits of a program: the lines of a cell and the pulls of its backward pass."""
