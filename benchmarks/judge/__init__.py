"""What measures the judge: its error rates, beside other checkers, on bugs that are planted."""
