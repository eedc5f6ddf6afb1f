"""The pages' tables and figures, made of recorded results: ``python -m benchmarks.readme``.

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; no number in it is typed.
tests/test_readme.py checks that the pages are what this makes of the records.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import draw
from benchmarks.peers import SHARE, between
from benchmarks.records import record
from benchmarks.runs import FOLDER, MARGINS, RUNS
from refnet.runs.rows import read_rows, table

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / place / "README.md" for place in ("", "refnet/check", "refnet/training",
                                                  "benchmarks")]


def summary(name: str) -> dict:
    return json.loads((FOLDER / name / "summary.json").read_text())


def command(name: str) -> str:
    return f"`refnet train {RUNS[name]}`"


def commands(*names: str) -> str:
    return "\n```sh\n" + "\n".join(f"refnet train {RUNS[name]}" for name in names) + "\n```\n"


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def classification(*names: str) -> str:
    rows = []
    for name in names:
        run = summary(name)
        best = run["best"]
        rows.append([run["config"]["method"], run["state"], run["iterations"],
                     f"{best['accuracy']:.2%}", f"{run['final']['spectral_radius']:.3f}",
                     minutes(run["seconds"])])
    return table(["method", "ended", "iterations", "best test accuracy",
                  "spectral radius at the end", "wall time"], rows) + commands(*names)


def copies() -> str:
    rows = []
    names = (*(f"copy-200-margin-{margin}" for margin in MARGINS), "copy-500-margin-0.1")
    for name in names:
        run = summary(name)
        final = run["final"]
        rows.append([run["config"]["length"], name.rsplit("-", 1)[1], run["state"],
                     run["iterations"], f"{final['accuracy']:.2%}",
                     f"{final['s_min']:.3f} to {final['s_max']:.3f}", minutes(run["seconds"])])
    return table(["T", "margin", "ended", "iterations", "accuracy on the ten symbols",
                  "singular values", "wall time"], rows) + commands(names[2], names[-1])


def adding() -> str:
    run = summary("adding-200-lstm")
    return table(["ended", "iterations", "mean squared error", "baseline", "wall time"],
                 [[run["state"], run["iterations"], run["best"]["mse"], 1 / 6,
                   minutes(run["seconds"])]]) + commands("adding-200-lstm")


def characters() -> str:
    run = summary("ptb-margin-1")
    best = run["best"]
    rows = [[split, best[f"{prefix}bpc"], best[f"{prefix}bpc_with_ends"],
             f"{best[f'{prefix}accuracy']:.2%}"]
            for split, prefix in (("validation", ""), ("test", "test_"))]
    return (f"{command('ptb-margin-1')}, {run['iterations']} iterations in "
            f"{minutes(run['seconds'])}:\n\n"
            + table(["split", "bits per character", "with the trivial end symbols", "accuracy"],
                    rows))


def spectrum() -> str:
    name = "permuted-mnist-margin-0.1"
    rows = [[row["iteration"], f"{row['accuracy']:.2%}", f"{row['s_min']:.4f}",
             f"{row['s_mean']:.4f}", f"{row['s_max']:.4f}"]
            for row in read_rows(FOLDER / name / "rows.jsonl")]
    return f"{command(name)}:\n\n" + table(
        ["iteration", "test accuracy", "smallest singular value", "mean", "largest"], rows)


def frameworks() -> str:
    """How many results of a framework are explained by rounding; the others one by one."""
    rows = [row for name in ("check_torch", "check_jax", "check_onnx")
            for row in record(name)["rows"]]
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
    explained = [[label, len(found), ", ".join(sorted({row["dtype"] for row in found})),
                  max(row["z"] for row in found)] for label, found in counted.items()]
    listed = [[*key, row.get("z"), f"T = {row['T']}, H = {row['H']}"]
              for key, row in others.items()]
    return (table(["framework", "results explained by rounding", "dtypes", "largest z"], explained)
            + "\nThe others, at the worst size of each:\n\n"
            + table(["framework", "what", "dtype", "verdict", "z", "at"], listed))


def checkers() -> str:
    names = ["refnet float32", "refnet float64", "gradcheck", "check_grads", "allclose",
             "assert_allclose"]
    labels = {"gradcheck": "torch.autograd.gradcheck", "check_grads": "jax check_grads",
              "allclose": "np.allclose", "assert_allclose": "np.testing.assert_allclose"}
    rows = []
    for name in names:
        judged = [row for row in record("check_checkers")["rows"] if row[name] is not None]
        right = [row[name] for row in judged if row["bug"] == "none"]
        wrong = [row for row in judged if row["bug"] != "none"]
        caught = sum(not row[name] for row in wrong)
        rows.append([labels.get(name, name), f"{sum(right)} of {len(right)}",
                     f"{caught} of {len(wrong)}"])
    return table(["checker", "correct gradients accepted", "planted bugs rejected"], rows)


def rates() -> str:
    counts = record("check_rates")["summary"]
    return table(["", "results", "judged wrongly", "largest z of a correct one"], [
        [f"correct results of {counts['implementations']} implementations", counts["correct"],
         counts["false_alarms"], counts["largest_z_of_correct"]],
        [f"planted bugs of {counts['kinds_of_bugs']} kinds", counts["bugs"], counts["missed"],
         None],
        ["of these, smaller than what rounding hides", counts["hidden_in_rounding"], None, None],
        ["of the bugs, explained by a name", counts["named"], None, None],
    ])


def peers() -> str:
    def both(entry: dict[str, Any], form: str = ".2f") -> str:
        return f"{entry['median']:{form}} ({entry['best']:{form}})"

    rows = [[f"{row['cell']} ({row['T']}, {row['D']}, {row['H']}, {row['B']})", row["dtype"],
             both({name: 1e3 * row["peers"]["compiled"][name] for name in ("median", "best")}),
             *(both(row["ratios"][name]) if name in row["ratios"] else None
               for name in ("torch", "torch.compile", "jax", "numpy")),
             both(row[SHARE], ".0%"), both(row["two threads over one"])]
            for row in record("peers")["sizes"]]
    return table(["cell (T, D, H, B)", "dtype", "refnet, ms", "PyTorch", "compile", "JAX", "NumPy",
                  "of the large product", "2 threads / 1"], rows)


def roofline() -> str:
    parts = ("product forward", "product backward", "weight gradient", "activation", "rest")
    rows = [[str(tuple(row["size"])), f"{row['step'] * 1e3:.1f}",
             *(f"{row[part] / row['step']:.0%}" for part in parts),
             f"{row['GFLOP/s of the step']:.0f}"] for row in record("peers")["roofline"]
            if row["dtype"] == "float32"]
    return table(["(T, D, H, B)", "ms", *parts, "GFLOP/s"], rows)


def steps() -> str:
    runs = record("steps")["runs"]
    rows = [[row["run"], f"({row['T']}, {row['D']}, {row['H']}, {row['B']})",
             f"{row['step'] * 1e3:.1f}",
             *(f"{part / row['step']:.0%}" for part in row["parts"].values())] for row in runs]
    return table(["run", "(T, D, H, B)", "ms", *runs[0]["parts"]], rows)


def startup() -> str:
    rows = [[row["net"], row["dtype"], *(f"{row[f'{state} cache']['gradient']:.2f} s"
                                         for state in ("empty", "full"))]
            for row in record("startup")["nets"]]
    return table(["cell", "dtype", "nothing compiled", "all compiled"], rows)


def lengths() -> str:
    found = record("peers")["lengths"]
    return table(list(found[0]), [[f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
                                   for value in row.values()] for row in found])


def table5() -> str:
    peers = ("cayley", "matrix_exp", "trivialisation")
    rows = []
    for size in record("table5")["sizes"]:
        ratios, times = size["ratios"], size["milliseconds"]
        rows.append([size["hidden"], between(times["refnet sgd"], 1),
                     between(ratios["geosgd / sgd"]), size["paper_geosgd / sgd"],
                     between(ratios["torch sgd / refnet sgd"]),
                     *(between(ratios[f"torch {peer} / refnet orthogonal"]) for peer in peers)])
    return table(["units", "SGD, ms a step", "geoSGD / SGD", "in the paper",
                  "torch SGD / SGD", *(f"torch {peer} / orthogonal" for peer in peers)], rows)


def checkpoints() -> str:
    rows = [[f"{row['T']:,}", *(between(entry, 1, 1e3) for entry in row["seconds"].values()),
             between(row["ratio"]), *(f"{size / 1e6:.1f}" for size in row["peak bytes"].values())]
            for row in record("checkpoints")["lengths"]]
    return table(["T", "none, ms a step", "sqrt, ms a step", "sqrt / none", "none, MB at the peak",
                  "sqrt, MB"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "temporal-order": lambda: classification(*(f"temporal-order-{m}"
                                               for m in ("plain", "oinit", "open"))),
    "mnist-feedforward": lambda: classification(*(f"mnist-feedforward-{m}"
                                                  for m in ("plain", "oinit", "open"))),
    "sequential-mnist": lambda: classification("sequential-mnist-oinit"),
    "copy": copies,
    "adding": adding,
    "permuted-mnist": spectrum,
    "ptb": characters,
    "rates": rates,
    "checkers": checkers,
    "frameworks": frameworks,
    "peers": peers,
    "roofline": roofline,
    "lengths": lengths,
    "steps": steps,
    "startup": startup,
    "table5": table5,
    "checkpoints": checkpoints,
}


def generate(text: str) -> str:
    """A page with every table made anew; raises KeyError for a marker without a table."""
    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{TABLES[name]()}<!-- /{name} -->"
    return re.sub(r"<!-- ([a-z0-9-]+) -->\n.*?<!-- /\1 -->", fill, text, flags=re.DOTALL)


def main() -> int:
    for page in PAGES:
        page.write_text(generate(page.read_text()))
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
