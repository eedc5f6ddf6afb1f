"""The tables of speed and memory, made from their records; ``benchmarks.readme`` puts them on the
pages."""

from benchmarks import fit
from benchmarks.peers import FLUSHED, ROOF, SHARE
from benchmarks.records import Row, named_tables, processor, record
from benchmarks.roofline import tables
from benchmarks.steps import shares, together
from benchmarks.turns import between
from refnet.runs.rows import table


def peers(recorded: Row | None = None) -> str:
    sizes = (recorded or record("peers"))["sizes"]

    def middle(entry: Row | None, form: str = ".2f", scale: float = 1) -> str:
        return f"{scale * entry['median']:{form}}" if entry else "-"

    def flushed(row: Row, name: str) -> str | None:
        """As it is, and with subnormal numbers as 0."""
        ratios = row["ratios"]
        return (
            f"{middle(ratios[name])} / {middle(ratios.get(name + FLUSHED))}"
            if name in ratios
            else None
        )

    rows = [
        [
            f"{row['cell']} ({row['T']}, {row['D']}, {row['H']}, {row['B']})",
            row["dtype"].replace("float", "f"),
            middle(row["peers"]["compiled"], scale=1e3),
            *(flushed(row, name) for name in ("torch", "torch.compile")),
            *(middle(row["ratios"].get(name)) for name in ("jax", "numpy")),
            f"{middle(row[SHARE], '.0%')} / {middle(row.get(ROOF), '.0%')}",
            middle(row["two threads over one"]),
            processor(row["machine"]),
        ]
        for row in sizes
    ]
    behind = [
        line[0] + " " + line[1]
        for line, row in zip(rows, sizes)
        if min(entry["median"] for entry in row["ratios"].values()) < 1
    ]
    return table(
        [
            "cell (T, D, H, B)",
            "",
            "ms",
            "PyTorch",
            "compile",
            "JAX",
            "NumPy",
            "share",
            "2 / 1",
            "processor",
        ],
        rows,
    ) + (f"\nSlower than one of the others: {'; '.join(behind) or 'none'}.\n")


def limits() -> str:
    return tables(record("roofline"))[0]


def roofline() -> str:
    recorded = record("roofline")
    return tables(
        {**recorded, "steps": [row for row in recorded["steps"] if row["dtype"] == "float32"]}
    )[1]


def steps() -> str:
    recorded = record("steps")
    if "side by side" not in recorded:
        return shares(recorded)
    return (
        f"{shares(recorded)}\nTwo runs of one thread each, side by side on two cores:\n\n"
        f"{together(recorded)}"
    )


def startup(recorded: Row | None = None) -> str:
    rows = [
        [
            row["net"],
            row["dtype"],
            *(f"{row[f'{state} cache']['gradient']:.2f} s" for state in ("empty", "full")),
        ]
        for row in (recorded or record("startup"))["nets"]
    ]
    return table(["cell", "dtype", "nothing compiled", "all compiled"], rows)


def lengths(recorded: Row | None = None) -> str:
    rows = (recorded or record("peers"))["lengths"]
    names = {
        "microseconds per time step": "microseconds a time step",
        "times the least": "over the least",
        "in the best rounds": "over it, best rounds",
        "peak MB with the inputs": "peak MB, with the inputs",
        "times one tape": "over one tape",
    }
    return table(
        [names.get(name, name) for name in rows[0]],
        [
            [f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for value in row.values()]
            for row in rows
        ],
    )


def table5() -> str:
    peers = ("cayley", "matrix_exp", "trivialisation")
    rows = []
    for size in record("table5")["sizes"]:
        ratios, times = size["ratios"], size["milliseconds"]
        rows.append(
            [
                size["hidden"],
                between(times["refnet sgd"], 1),
                between(ratios["geosgd / sgd"]),
                size["paper_geosgd / sgd"],
                between(ratios["torch sgd / refnet sgd"]),
                *(between(ratios[f"torch {peer} / refnet orthogonal"]) for peer in peers),
            ]
        )
    return table(
        [
            "units",
            "SGD, ms a step",
            "geoSGD / SGD",
            "in the paper",
            "torch SGD / SGD",
            *(f"torch {peer} / orthogonal" for peer in peers),
        ],
        rows,
    )


def parametrisations() -> str:
    pairs = (
        "matrix_exp / expm",
        "cayley / cayley",
        "cayley / scaled_cayley",
        "householder / householder",
    )
    rows = []
    for size in record("table5")["sizes"]:
        ratios = [
            size["ratios"].get(f"torch {pair.replace(' / ', ' / refnet ')}") for pair in pairs
        ]
        schur = size["milliseconds"].get("refnet schur")
        rows.append(
            [
                size["hidden"],
                *(between(entry) if entry else None for entry in ratios),
                between(schur, 1) if schur else None,
            ]
        )
    if not any(entry for row in rows for entry in row[1:]):
        return "Not recorded yet; `python -m benchmarks.table5` does it.\n"
    return table(["units", *(f"torch {pair}" for pair in pairs), "schur, ms a step"], rows)


def verdicts() -> str:
    rows = [
        [
            f"{row['cell']} ({row['sizes'].replace(',', ', ')})",
            *(f"{row[name]:.1f}" for name in ("first", "edited", "wrong", "nameless")),
        ]
        for row in record("verdicts")["rows"]
    ]
    return table(
        [
            "net (T, H, B)",
            "first verdict, s",
            "file edited, s",
            "wrong, with a name, s",
            "wrong, without a name, s",
        ],
        rows,
    )


def checkpoints(recorded: Row | None = None) -> str:
    rows = [
        [
            f"{row['T']:,}",
            *(between(entry, 1, 1e3) for entry in row["seconds"].values()),
            between(row["ratio"]),
            *(f"{size / 1e6:.1f}" for size in row["peak bytes"].values()),
        ]
        for row in (recorded or record("checkpoints"))["lengths"]
    ]
    return table(
        [
            "T",
            "none, ms a step",
            "sqrt, ms a step",
            "sqrt / none",
            "none, MB at the peak",
            "sqrt, MB",
        ],
        rows,
    )


def torch_layers() -> str:
    return table(
        ["cell (T, D, H, B), lengths", "step, ms", "torch.nn", "forward, ms", "torch.nn"],
        [
            ["{} ({}, {}, {}, {}), {}".format(*row["row"])]
            + [
                between(row[kind][what], 2, scale)
                for kind in ("step", "forward")
                for what, scale in (("seconds", 1e3), ("ratio", 1))
            ]
            for row in record("torch_layers")["rows"]
        ],
    )


def fits() -> str:
    return fit.fits(record("fit"))


TABLES = named_tables(
    peers,
    limits,
    roofline,
    steps,
    startup,
    lengths,
    table5,
    parametrisations,
    verdicts,
    checkpoints,
    torch_layers,
    fits,
)
