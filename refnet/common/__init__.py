"""What every room uses: checked arguments, names and their options, the process, the terminal."""
