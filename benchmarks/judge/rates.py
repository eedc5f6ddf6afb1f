"""How often the verdict is wrong: correct implementations and planted bugs by the thousand.

``python -m benchmarks.judge.rates --nets 400 --json benchmarks/results/check_rates.json``: more
than 6,000 results of twenty implementations and 8,000 bugs, in half an hour. The exit status is 1
if a verdict is wrong. Checked by: tests/check/test_error_rates.py.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from benchmarks.judge.bugs import CORRECT, bugs
from benchmarks.judge.cases import random_case, table, wide
from benchmarks.judge.implementations import IMPLEMENTATIONS, refused
from benchmarks.records import Row
from refnet.check.conventions import Readings
from refnet.check.mistakes import Mistake
from refnet.check.noise import spread
from refnet.check.tables import cell, save, show, size, target
from refnet.check.verdict import (
    EXPLAINED,
    LIMITS,
    NOT_ROUNDING,
    UNJUDGED,
    Verdict,
    compare,
    compare_values,
)
from refnet.exact.enclose import Certified, certify
from refnet.exact.precision import float_values
from refnet.nets.feedforward import FeedforwardNet

DTYPES = (np.float32, np.float64)
ACCEPTED = (EXPLAINED, UNJUDGED)
"""Nothing wrong is found, which is an error of the judge for a bug and none for what is right."""
CASES = table("""
rnn                          3   3   4   2   2
rnn                          3   4   4   5   2
rnn                          3  16   4  10   4
rnn                          3  32   4  50   4
rnn                          3   8   4 200   2
rnn every mask               3   6   4  10   4
rnn h0                       2   5   3   7   3
rnn relu gain                2   5   3   7   3
rnn clipped                  2   5   3   7   3
rnn orthogonal               3   5   4   8   3
rnn svd                      3   5   4   8   3
rnn cayley                   3   5   4   8   3
rnn householder              3   5   4   8   3
lstm                         3   8   4  10   3
lstm                         3  12   4  50   2
lstm every mask h0           3   5   4   8   4
lstm every peepholes         3   5   4   7   3
lstm orthogonal              3   4   3   6   3
gru                          3   6   4   8   3
gru                          3  12   4  50   2
gru every mask               3   5   4   8   4
gru_before mask              3   5   4   8   4
gru_before every             3   8   4  20   2
feedforward                  4   6   3   2   8
feedforward relu             6  10   4   3   8
feedforward svd              5   6   3   2   8
""")
COLUMNS = {
    "what": 60,
    "cell": 6,
    "dtype": 8,
    "T": 4,
    "H": 3,
    "B": 2,
    "worst": 8,
    "z": 9,
    "verdict": 22,
    "convention": 0,
}
COUNTS = {
    "correct": ("correct", "false_alarms", "largest_z_of_correct"),
    "bug": ("bugs", "found", "hidden_in_rounding", "missed", "named", "by_their_own"),
}
"""What is counted of each kind of row."""


def _row(certified: Certified, verdict: Verdict) -> Row:
    """The sizes of the case and what the judge says."""
    net, x = certified.net, certified.batch.x
    if isinstance(net, FeedforwardNet):
        T, H, cell_name = 0, net.widths[1], "feedforward"
    else:
        T, H, cell_name = len(x), net.hidden, net.cell
    return {
        "T": T,
        "B": x.shape[-2],
        "H": H,
        "cell": cell_name,
        "dtype": x.dtype.name,
        "z": verdict.worst.z,
        "worst": verdict.worst.name,
        "verdict": verdict.verdict,
    }


def correct_rows(
    nets: int,
    seed: int = 0,
    longest: int = 784,
    implementations: Iterable[str] = tuple(IMPLEMENTATIONS),
) -> Iterator[Row]:
    """One row for every implementation of each of so many random nets, half in float32.

    JAX, which takes a second to compile a net, runs half of them.
    """
    for number in range(nets):
        rng = np.random.default_rng([seed, number])
        dtype = DTYPES[number % 2]
        net, params, batch = random_case(rng, dtype, longest)
        certified = certify(net, params, batch)
        sigma = spread(certified, dtype)
        for name in implementations:
            if refused(name, net, params, batch) or (name == "JAX" and number % 4 > 1):
                continue
            verdict = compare(
                IMPLEMENTATIONS[name](net, params, batch),
                certified,
                dtype=dtype,
                sigma=sigma,
                required=("h",) if "onnx" in name.lower() else None,
            )
            yield {
                "kind": "correct",
                "what": name,
                "net": number,
                **_row(certified, verdict),
                "activation": net.activation.name,
                "readout": getattr(net, "readout", ""),
                "mask": batch.mask is not None,
                "peepholes": "Wpi" in params,
                "transition": "" if net.transition is None else type(net.transition).__name__,
                "note": verdict.worst.note,
            }


def bug_rows(
    seed: int = 0,
    cases: Iterable[int] = range(len(CASES)),
    planted: Callable[[Certified], list[Mistake]] = bugs,
) -> Iterator[Row]:
    """One row for every bug in every case (the index in ``CASES``), in float32 and float64.

    ``true_z``: how far the bug itself goes, computed in float64 (where that is wide enough to
    be called exact: for float32), in units of sigma. A bug with true_z below the limit changes
    nothing that rounding could not have changed. A bug without any effect makes no row.
    """
    for number in cases:
        for dtype in DTYPES:
            certified = CASES[number].certified(np.random.default_rng([seed, number]), dtype)
            sigma, readings = spread(certified, dtype), Readings(certified, pairs=False)
            net, params, batch = certified.net, certified.params, certified.batch
            true = float_values(certified.named())
            right, in_float64 = CORRECT.run(net, params, batch), wide(certified)
            for bug in (CORRECT, *planted(certified)):
                with np.errstate(all="ignore"):
                    theirs = bug.run(net, params, batch)
                    exact = bug.run(net, *in_float64)
                if bug is not CORRECT and all(
                    np.array_equal(theirs[name], right[name]) for name in right
                ):
                    continue
                verdict = compare(theirs, certified, dtype=dtype, sigma=sigma, readings=readings)
                yield {
                    "kind": "correct" if bug is CORRECT else "bug",
                    "what": bug.label,
                    "case": CASES[number].name,
                    **_row(certified, verdict),
                    "true_z": compare_values(exact, true, sigma, dtype, ()).worst.z,
                    "convention": verdict.convention,
                }


def summary(rows: list[Row]) -> Row:
    """Counts: false alarms among the correct, misses among the bugs, bugs by their name.

    ``named``: bugs found to be no rounding and given a name; ``by_their_own``: the right name.
    """
    correct = [row for row in rows if row["kind"] == "correct"]
    planted = [row for row in rows if row["kind"] == "bug"]
    missed = [row for row in planted if row["verdict"] in ACCEPTED]
    named = [row for row in planted if row["verdict"] == NOT_ROUNDING and row.get("convention")]
    return {
        "correct": len(correct),
        "implementations": len({row["what"] for row in correct} - {CORRECT.name}),
        "false_alarms": sum(row["verdict"] not in ACCEPTED for row in correct),
        "largest_z_of_correct": max((row["z"] for row in correct), default=0.0),
        "bugs": len(planted),
        "kinds_of_bugs": len({row["what"] for row in planted}),
        "found": len(planted) - len(missed),
        "hidden_in_rounding": sum(row["true_z"] <= LIMITS[1] for row in missed),
        "missed": sum(row["true_z"] > LIMITS[1] for row in missed),
        "named": len(named),
        "by_their_own": sum(row["convention"] == row["what"] for row in named),
    }


def tables(rows: list[Row]) -> Row:
    """What to keep of the rows: one line for every implementation, one for every kind of bug,
    all z (three digits), and in full the rows that are not as they should be."""
    groups: dict[str, dict[str, list[Row]]] = {kind: defaultdict(list) for kind in COUNTS}
    for row in rows:
        groups[row["kind"]][row["what"]].append(row)
    correct, planted = (
        [
            {"what": what, **{name: summary(group)[name] for name in names}}
            for what, group in groups[kind].items()
        ]
        for kind, names in COUNTS.items()
    )
    return {
        "z": {
            kind: " ".join(f"{row['z']:.3g}" for row in rows if row["kind"] == kind)
            for kind in COUNTS
        },
        "correct": correct,
        "bugs": planted,
        "rows": [
            row for row in rows if (row["verdict"] not in ACCEPTED) == (row["kind"] == "correct")
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how often the verdict is wrong.")
    parser.add_argument("--nets", type=size, default=400, help="random nets (default: 400)")
    parser.add_argument("--longest", type=size, default=784, help="most steps (default: 784)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=target, metavar="FILE", help="where the counts go")
    parser.add_argument(
        "--implementations",
        nargs="+",
        choices=IMPLEMENTATIONS,
        default=tuple(IMPLEMENTATIONS),
        metavar="NAME",
        help="such as: compiled 'C pairwise' PyTorch (default: all)",
    )
    args = parser.parse_args()
    rows = show(correct_rows(args.nets, args.seed, args.longest, args.implementations), COLUMNS)
    rows += show(bug_rows(args.seed), COLUMNS)
    counts, content = summary(rows), tables(rows)
    save(args.json, content.pop("rows"), summary=counts, **content)
    print("\n".join(f"{name.replace('_', ' ')}: {cell(value)}" for name, value in counts.items()))
    return 1 if counts["false_alarms"] or counts["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
