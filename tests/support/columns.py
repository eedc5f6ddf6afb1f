"""What a command's table says, read back."""


def in_columns(out):
    """The verdicts of a table, each below its header; indented lines say where a result parts, and
    the last one counts."""
    header, *lines, last = (line for line in out.splitlines() if not line.startswith("    "))
    places = [header.index(name) for name in ("dtype", "worst", "verdict")]
    assert all(
        (not place or line[place - 2 : place].isspace()) and line[place] != " "
        for line in lines
        for place in places
    )
    verdicts = [line[places[2] :].strip() for line in lines]
    right = verdicts.count("explained by rounding")
    assert last == f"{right} of {len(lines)} are explained by rounding"
    return verdicts
