"""The tables of what the judge finds, made from its records; ``benchmarks.readme`` puts them on the
pages."""

from operator import itemgetter
from statistics import median

from benchmarks.judge.checkers import CHECKERS
from benchmarks.judge.planted import summary
from benchmarks.records import Row, grouped, named_tables, processor, record
from refnet.runs.rows import table


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
    settings = itemgetter("framework", "layer", "dtype", "setting")
    groups = grouped(record("check_gpu")["rows"], settings)
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

    def form(row: Row) -> tuple[str, str]:
        layer = row["what"].partition(",")[0].partition(" linear_before")[0]
        return row["framework"], layer.split(" ")[0] if "onnx" in row["framework"] else layer

    recorded, shown = record("check_layers"), []
    for (framework, kind), rows in grouped(recorded["rows"], form).items():
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
    for cell, of_cell in grouped(recorded["rows"], itemgetter("cell")).items():
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


def planted() -> str:
    """How planted bugs are explained, by program."""
    content = record("planted")
    by_program = grouped(content["rows"], itemgetter("program"))
    rows = [(name, summary(group)) for name, group in by_program.items()]
    rows.append(("together", content["summary"]))
    return table(
        ["program", "kinds of bug", "not rounding", "located", "named", "named wrongly"],
        [[name, *counts.values()] for name, counts in rows],
    )


TABLES = named_tables(frameworks, gpu, layers, exponential, step_sums, checkers, rates, planted)
