"""The pages' tables and figures, made from recorded results: ``python -m benchmarks.readme``.

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; no number in it is typed.
tests/project/test_readme.py and, for benchmarks/README.md, tests/studies/test_pages.py
check that the pages are what this makes of the records.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from benchmarks import studies
from benchmarks.figures import draw
from benchmarks.judge.checkers import CHECKERS
from benchmarks.peers import FLUSHED, ROOF, SHARE
from benchmarks.records import Row, processor, record
from benchmarks.roofline import tables
from benchmarks.steps import shares, together
from benchmarks.turns import between
from refnet.runs.rows import table
from refnet.studies import examples
from refnet.studies.comparison import stated
from refnet.studies.declared import FINDINGS
from refnet.studies.study import Study, View

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / place / "README.md" for place in ("", "refnet/check", "refnet/training")),
    ROOT / "benchmarks" / "SPEED.md",
]
"""Those with tables; studies.PAGE is made as a whole."""


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def command(settings: Row) -> str:
    """The command of a cell's settings."""
    flags = [
        f"--{name.replace('_', '-')} {value}" for name, value in settings.items() if name != "task"
    ]
    return " ".join(["refnet train", settings["task"], *flags])


def ended(study: Study, name: str) -> list[Row]:
    """The recorded runs of a study whose name is that up to the seed."""
    row_of = studies.recorded(study)
    return [
        row
        for job in study.jobs(View(row_of, studies.seeds(study)))
        if job.name.rpartition(", ")[0] == name and (row := row_of(job)) is not None
    ]


def solved(runs: list[Row]) -> list[Any]:
    """How many of the runs solved their task, and in how many iterations."""
    taken = sorted(run["iterations"] for run in runs if run["state"] == "solved")
    return [
        f"{len(taken)} of {len(runs)}",
        "-"
        if not taken
        else f"{median(taken):.0f}" + (f" ({taken[0]} to {taken[-1]})" if len(taken) > 1 else ""),
    ]


SOLVED = ["seeds solved", "iterations until solved, median (range)"]


def by_seeds() -> str:
    """How the methods do on temporal order, over the recorded seeds."""
    rows = []
    for method, cell in examples.METHODS.items():
        runs = ended(examples.STUDY, cell.label)
        radii = sorted(run["final"]["spectral_radius"] for run in runs)
        rows.append(
            [
                method,
                *solved(runs),
                f"{min(run['best']['accuracy'] for run in runs):.2%}",
                f"{radii[0]:.3f} to {radii[-1]:.3f}",
                minutes(median(run["seconds"] for run in runs)),
            ]
        )
    commands = "\n".join(command(cell.settings) for cell in examples.METHODS.values())
    return (
        table(
            [
                "method",
                *SOLVED,
                "lowest best test accuracy",
                "spectral radius at the end",
                "median wall time",
            ],
            rows,
        )
        + f"\n```sh\n{commands}\n```\n"
    )


def methods() -> str:
    """What these runs show beyond their spread."""
    rows = {cell.label: ended(examples.STUDY, cell.label) for cell in examples.METHODS.values()}
    claimed = [finding for finding in FINDINGS["examples"] if finding.claims]
    return "".join(f"{fill(text, 100)}\n" for text in stated(claimed, rows))


def copies() -> str:
    """The runs of the study figure-1 that are recorded, over the seeds."""
    study, rows = studies.STUDIES["figure-1"], []
    for job in study.jobs(View()):
        name = job.name.rpartition(", ")[0]
        if runs := ended(study, name):
            finals = [run["final"] for run in runs]
            rows.append(
                [
                    *(part.split()[-1] for part in name.split(", ")),
                    *solved(runs),
                    f"{min(final['accuracy'] for final in finals):.2%}",
                    f"{min(final['s_min'] for final in finals):.3f} to "
                    f"{max(final['s_max'] for final in finals):.3f}",
                    minutes(median(run["seconds"] for run in runs)),
                ]
            )
    return table(
        [
            "T",
            "margin",
            *SOLVED,
            "lowest accuracy on the ten symbols",
            "singular values",
            "median wall time",
        ],
        rows,
    ) + (
        "\n```sh\nrefnet study figure-1\nrefnet train copy --length 200 --transition "
        "svd:margin=0.1\n```\n"
    )


def adding() -> str:
    runs = ended(examples.STUDY, examples.LSTM.label)
    return table(
        [*SOLVED, "mean squared error", "baseline", "wall time"],
        [
            [
                *solved(runs),
                median(run["best"]["mse"] for run in runs),
                1 / 6,
                minutes(median(run["seconds"] for run in runs)),
            ]
        ],
    ) + (f"\n```sh\n{command(examples.LSTM.settings)}\n```\n")


def frameworks() -> str:
    """How many results of a framework are explained by rounding; the others one by one."""
    rows = [
        row for name in ("check_torch", "check_jax", "check_onnx") for row in record(name)["rows"]
    ]
    counted: dict[str, list[dict]] = {}
    others: dict[tuple[str, ...], dict] = {}
    for row in rows:
        label = f"{row['framework']} {row['version']}"
        if row["verdict"] == "explained by rounding":
            counted.setdefault(label, []).append(row)
            continue
        key = (label, row["what"], row["dtype"], row["verdict"])
        if key not in others or (row.get("z") or 0) > (others[key].get("z") or 0):
            others[key] = row
    explained = [
        [
            label,
            len(results),
            ", ".join(sorted({row["dtype"] for row in results})),
            max(row["z"] for row in results),
        ]
        for label, results in counted.items()
    ]
    listed = [
        [*key, row.get("z"), f"T = {row['T']}, H = {row['H']}"] for key, row in others.items()
    ]
    return (
        table(["framework", "results explained by rounding", "dtypes", "largest z"], explained)
        + "\nThe others, at the worst size of each:\n\n"
        + table(["framework", "what", "dtype", "verdict", "z", "at"], listed)
    )


def gpu() -> str:
    """Of the layers on a GPU: how many forms are explained by rounding, by type and setting."""
    groups: dict[tuple[str, ...], list[dict]] = {}
    for row in record("check_gpu")["rows"]:
        groups.setdefault(
            (row["framework"], row["layer"], row["dtype"], row["setting"]), []
        ).append(row)
    return table(
        [
            "framework",
            "layer",
            "dtype",
            "products of float32",
            "explained",
            "cannot be judged",
            "not rounding",
            "largest z",
        ],
        [
            [
                *group,
                *(
                    sum(row["verdict"] == verdict for row in rows)
                    for verdict in ("explained by rounding", "cannot be judged")
                ),
                sum(row["verdict"] in ("not rounding", "suspicious") for row in rows),
                max(float(row["z"]) for row in rows),
            ]
            for group, rows in groups.items()
        ],
    )


def layers() -> str:
    """Of each layer as it is shipped: how many forms of it are explained by rounding."""
    counts: dict[tuple[str, str], list[dict]] = {}
    recorded = record("check_layers")
    for row in recorded["rows"]:
        layer = row["what"].partition(",")[0].partition(" linear_before")[0].split(" ")
        kind = layer[0] if "onnx" in row["framework"] else " ".join(layer)
        counts.setdefault((row["framework"], kind), []).append(row)
    shown = []
    for (framework, kind), rows in counts.items():
        verdicts = [row["verdict"] for row in rows]
        known = [row["z"] for row in rows if row["verdict"] == "explained by rounding"]
        shown.append(
            [
                f"{framework} {recorded['versions'][framework]}",
                kind,
                *map(
                    verdicts.count,
                    ("explained by rounding", "suspicious", "not rounding", "refused"),
                ),
                max(known, default=None),
            ]
        )
    return table(
        ["framework", "layer", "explained", "suspicious", "not rounding", "refused", "largest z"],
        shown,
    )


def exponential() -> str:
    """The polynomials of PyTorch's matrix exponential, and which of their terms are wrong."""
    recorded = record("exponential")
    return table(
        [
            f"PyTorch {recorded['torch']}",
            "polynomial's degree",
            "1-norms",
            "wrong terms, of what they should be",
            "largest error of sin a, in unit roundoffs of a",
        ],
        [
            [
                row["dtype"],
                row["degree"],
                f"{row['from']:.3g} to {row['to']:.3g}",
                ", ".join(f"A^{k}: {ratio:.3f}" for k, ratio in row["wrong terms"].items())
                or "none",
                row["sine"],
            ]
            for row in recorded["rows"]
        ],
    )


def step_sums() -> str:
    """In what PyTorch's layers add up the gradients of Whh over the steps, by cell."""
    recorded, rows = record("step_sums"), []
    for cell in dict.fromkeys(row["cell"] for row in recorded["rows"]):
        of_cell = [row for row in recorded["rows"] if row["cell"] == cell]
        zs = {kind: [row["z"][kind] for row in of_cell] for kind in of_cell[0]["z"]}
        rows.append(
            [
                cell,
                *(
                    f"{min(zs[kind]):.1f} to {max(zs[kind]):.1f}"
                    for kind in ("layer", "layer as bfloat16", "float32", "bfloat16")
                ),
                *(
                    f"{sum(kind in row['same bits'] for row in of_cell)} of {len(of_cell)}"
                    for kind in ("float32", "bfloat16")
                ),
            ]
        )
    return table(
        [
            f"PyTorch {recorded['torch']}",
            "layer",
            "layer, judged as bfloat16",
            "steps added in float32",
            "in bfloat16",
            "layer's bits are those in float32",
            "in bfloat16",
        ],
        rows,
    ) + (
        f"\n(On {processor(recorded['environment']['processor'])}; PyTorch's instructions: "
        f"{recorded['capability']}; bfloat16 by oneDNN: "
        f"{'yes' if recorded['oneDNN has bfloat16'] else 'no'}.)\n"
    )


def checkers() -> str:
    recorded = record("check_checkers")["rows"]
    kinds = len({row["bug"] for row in recorded}) - 1
    nets = {row["case"]: row["prepared"] for row in recorded}
    labels = {
        "gradcheck": "torch.autograd.gradcheck",
        "check_grads": "jax check_grads",
        "allclose": "np.allclose",
        "assert_allclose": "np.testing.assert_allclose",
    }
    rows = []
    for name in CHECKERS:
        right = [row[name] for row in recorded if row["bug"] == "none"]
        wrong = [
            [
                not row[name]
                for row in recorded
                if row["bug"] != "none" and row["forward"] is forward
            ]
            for forward in (False, True)
        ]
        seconds = median(row[f"{name}, seconds"] for row in recorded)
        rows.append(
            [
                labels.get(name, name),
                f"{sum(right)} of {len(right)}",
                *(f"{sum(bugs)} of {len(bugs)}" for bugs in wrong),
                f"{seconds:.1g}",
            ]
        )
    return table(
        [
            "checker",
            "correct gradients accepted",
            "bugs of the backward pass rejected",
            "bugs that the outputs or the loss show, too, rejected",
            "seconds a verdict (median)",
        ],
        rows,
    ) + (
        f"\n{kinds} kinds of bugs in {len(nets)} nets. The certificate that refnet and NumPy's "
        "functions compare with,\nand the sigmas, took "
        f"{median(nets.values()):.2f} s a net (median), once.\n"
    )


def rates() -> str:
    counts = record("check_rates")["summary"]
    return table(
        ["", "results", "judged wrongly", "largest z of a correct one"],
        [
            [
                f"correct results of {counts['implementations']} implementations",
                counts["correct"],
                counts["false_alarms"],
                counts["largest_z_of_correct"],
            ],
            [
                f"planted bugs of {counts['kinds_of_bugs']} kinds",
                counts["bugs"],
                counts["missed"],
                None,
            ],
            [
                "of these, too small to show beside rounding",
                counts["hidden_in_rounding"],
                None,
                None,
            ],
            ["of the bugs, named by the verdict", counts["named"], None, None],
        ],
    )


def peers() -> str:
    def median(entry: Row | None, form: str = ".2f", scale: float = 1) -> str:
        return f"{scale * entry['median']:{form}}" if entry else "-"

    def flushed(row: Row, name: str) -> str | None:
        """As it is, and with subnormal numbers as 0."""
        ratios = row["ratios"]
        return (
            f"{median(ratios[name])} / {median(ratios.get(name + FLUSHED))}"
            if name in ratios
            else None
        )

    rows = [
        [
            f"{row['cell']} ({row['T']}, {row['D']}, {row['H']}, {row['B']})",
            row["dtype"].replace("float", "f"),
            median(row["peers"]["compiled"], scale=1e3),
            *(flushed(row, name) for name in ("torch", "torch.compile")),
            *(median(row["ratios"].get(name)) for name in ("jax", "numpy")),
            f"{median(row[SHARE], '.0%')} / {median(row.get(ROOF), '.0%')}",
            median(row["two threads over one"]),
            processor(row["machine"]),
        ]
        for row in record("peers")["sizes"]
    ]
    behind = [
        line[0] + " " + line[1]
        for line, row in zip(rows, record("peers")["sizes"])
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


def startup() -> str:
    rows = [
        [
            row["net"],
            row["dtype"],
            *(f"{row[f'{state} cache']['gradient']:.2f} s" for state in ("empty", "full")),
        ]
        for row in record("startup")["nets"]
    ]
    return table(["cell", "dtype", "nothing compiled", "all compiled"], rows)


def lengths() -> str:
    recorded = record("peers")["lengths"]
    names = {
        "microseconds per time step": "microseconds a time step",
        "times the least": "over the least",
        "in the best rounds": "over it, best rounds",
        "peak MB with the inputs": "peak MB, with the inputs",
        "times one tape": "over one tape",
    }
    return table(
        [names.get(name, name) for name in recorded[0]],
        [
            [f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for value in row.values()]
            for row in recorded
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
            *(f"{row[name]:.1f}" for name in ("first", "edited", "wrong")),
        ]
        for row in record("verdicts")["rows"]
    ]
    return table(
        [
            "net (T, H, B)",
            "first verdict, s",
            "file edited, s",
            "edited so that it is wrong, and named, s",
        ],
        rows,
    )


def checkpoints() -> str:
    rows = [
        [
            f"{row['T']:,}",
            *(between(entry, 1, 1e3) for entry in row["seconds"].values()),
            between(row["ratio"]),
            *(f"{size / 1e6:.1f}" for size in row["peak bytes"].values()),
        ]
        for row in record("checkpoints")["lengths"]
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


TABLES: dict[str, Callable[[], str]] = {
    "temporal-order": by_seeds,
    "methods": methods,
    "copy": copies,
    "adding": adding,
    "rates": rates,
    "checkers": checkers,
    "frameworks": frameworks,
    "gpu": gpu,
    "layers": layers,
    "exponential": exponential,
    "step-sums": step_sums,
    "peers": peers,
    "limits": limits,
    "roofline": roofline,
    "lengths": lengths,
    "steps": steps,
    "startup": startup,
    "table5": table5,
    "parametrisations": parametrisations,
    "checkpoints": checkpoints,
    "verdicts": verdicts,
}


def generate(text: str) -> str:
    """A page with every table made again; raises KeyError for a marker without a table."""

    def filled(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{TABLES[name]()}<!-- /{name} -->"

    return re.sub(r"<!-- ([a-z0-9-]+) -->\n.*?<!-- /\1 -->", filled, text, flags=re.DOTALL)


def main() -> int:
    draw()
    for page in PAGES:
        page.write_text(generate(page.read_text()))
    studies.PAGE.write_text(studies.page())
    if lost := studies.unlisted():
        sys.exit(f"add to benchmarks/studies.py, LOST: {', '.join(lost)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
