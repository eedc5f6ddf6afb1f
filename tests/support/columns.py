"""What a command's table says, read back."""

import re


def in_columns(out):
    """The verdicts of a table, each below its header; lines without a type in their column say
    where a result parts, and a line beneath the rows counts."""
    header, *below = out.splitlines()
    places = [header.index(name) for name in ("dtype", "worst", "verdict")]
    lines = [line for line in below if re.match(r"b?float\d|tf32", line[places[0] :])]
    assert all(
        (not place or line[place - 2 : place].isspace()) and line[place] != " "
        for line in lines
        for place in places
    )
    verdicts = [line[places[2] :].strip() for line in lines]
    right = verdicts.count("explained by rounding")
    assert f"{right} of {len(lines)} are explained by rounding" in below
    return verdicts
