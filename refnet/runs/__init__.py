"""What a run leaves on the disk: rows, checkpoints, figures; files written whole or not at all."""
