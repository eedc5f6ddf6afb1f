"""The files of a run: rows, checkpoints, figures; files written whole or not at all."""
