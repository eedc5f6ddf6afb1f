"""How often the verdict is wrong: correct implementations and planted bugs by the thousand.

``refnet.check.checkers`` gives the same bugs to today's checkers.
Checked by: tests/check/test_error_rates.py.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.bugs import CORRECT, bugs
from refnet.check.cases import random_batch, random_case, random_mask, random_params
from refnet.check.conventions import Readings
from refnet.check.implementations import IMPLEMENTATIONS, refused
from refnet.check.mistakes import Mistake
from refnet.check.noise import spread
from refnet.check.verdict import EXPLAINED, LIMITS, NOT_ROUNDING, UNJUDGED, compare, compare_values
from refnet.exact.enclose import Certified, certify
from refnet.maths.activations import ACTIVATIONS
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet

__all__ = ["CASES", "bug_rows", "correct_rows", "summary", "tables"]

Rows = Iterator[dict[str, Any]]
DTYPES = (np.float32, np.float64)
ACCEPTED = (EXPLAINED, UNJUDGED)
"""Nothing wrong is found, which is an error of the judge for a bug and none for what is right."""


def _nets() -> Iterator[tuple[str, Net, int, int]]:
    """Name, net, T and B of the cases that bugs are planted in; the names say what else."""
    relu = ACTIVATIONS["relu"]
    for T, H, B in ((2, 3, 2), (5, 4, 2), (10, 16, 4), (50, 32, 4), (200, 8, 2)):
        yield "rnn", RecurrentNet(3, H, 4), T, B
    yield "rnn every mask", RecurrentNet(3, 6, 4, readout="every"), 10, 4
    yield "rnn h0", RecurrentNet(2, 5, 3, learn_h0=True), 7, 3
    yield (
        "rnn relu gain",
        RecurrentNet(2, 5, 3, activation=relu, loss="squared_error", gain=1.25),
        7,
        3,
    )
    yield "rnn clipped", RecurrentNet(2, 5, 3, readout="every", clip_step=0.05), 7, 3
    for name in ("orthogonal", "svd", "cayley", "householder"):
        yield f"rnn {name}", RecurrentNet(3, 5, 4, transition=transition(name)), 8, 3
    for T, H, B in ((10, 8, 3), (50, 12, 2)):
        yield "lstm", RecurrentNet(3, H, 4, cell="lstm"), T, B
    yield (
        "lstm every mask h0",
        RecurrentNet(3, 5, 4, cell="lstm", readout="every", learn_h0=True),
        8,
        4,
    )
    yield "lstm every peepholes", RecurrentNet(3, 5, 4, cell="lstm", readout="every"), 7, 3
    yield (
        "lstm orthogonal",
        RecurrentNet(3, 4, 3, cell="lstm", transition=transition("orthogonal")),
        6,
        3,
    )
    for T, H, B in ((8, 6, 3), (50, 12, 2)):
        yield "gru", RecurrentNet(3, H, 4, cell="gru"), T, B
    yield "gru every mask", RecurrentNet(3, 5, 4, cell="gru", readout="every"), 8, 4
    yield "gru_before mask", RecurrentNet(3, 5, 4, cell="gru_before"), 8, 4
    yield "gru_before every", RecurrentNet(3, 8, 4, cell="gru_before", readout="every"), 20, 2
    yield "feedforward", FeedforwardNet((4, 6, 6, 3)), 0, 8
    yield (
        "feedforward relu",
        FeedforwardNet((6, 10, 10, 10, 4), activation=relu, loss="squared_error"),
        0,
        8,
    )
    yield "feedforward svd", FeedforwardNet((5, 6, 6, 3), transition=transition("svd")), 0, 8


CASES = tuple(_nets())


def _sizes(net: Net, batch: Batch) -> dict[str, Any]:
    flat = isinstance(net, FeedforwardNet)
    return {
        "T": 0 if flat else len(batch.x),
        "B": batch.x.shape[-2],
        "H": net.widths[1] if isinstance(net, FeedforwardNet) else net.hidden,
        "cell": "feedforward" if isinstance(net, FeedforwardNet) else net.cell,
    }


def correct_rows(
    nets: int,
    seed: int = 0,
    longest: int = 784,
    implementations: tuple[str, ...] = tuple(IMPLEMENTATIONS),
    first: int = 0,
) -> Rows:
    """One row for every implementation of random nets ``first`` to ``nets``, half in float32.

    JAX, which takes a second to compile a net, runs half of them.
    """
    for number in range(first, nets):
        rng = np.random.default_rng([seed, number])
        dtype = DTYPES[number % 2]
        net, params, batch = random_case(rng, dtype, longest)
        certified = certify(net, params, batch)
        sigma = spread(certified, dtype)
        for name in implementations:
            if refused(name, net, params, batch) or (name == "JAX" and number % 4 > 1):
                continue
            required = ("h",) if "ONNX" in name or "onnx" in name else None
            verdict = compare(
                IMPLEMENTATIONS[name](net, params, batch),
                certified,
                dtype=dtype,
                sigma=sigma,
                required=required,
            )
            made = "" if net.transition is None else type(net.transition).__name__
            yield {
                "kind": "correct",
                "what": name,
                "net": number,
                **_sizes(net, batch),
                "activation": net.activation.name,
                "readout": getattr(net, "readout", ""),
                "mask": batch.mask is not None,
                "peepholes": "Wpi" in params,
                "transition": made,
                "dtype": np.dtype(dtype).name,
                "z": verdict.worst.z,
                "worst": verdict.worst.name,
                "verdict": verdict.verdict,
                "note": verdict.worst.note,
            }


def _case(number: int, seed: int, dtype: Any) -> tuple[str, Certified]:
    name, net, T, B = CASES[number]
    rng = np.random.default_rng([seed, number])
    params = random_params(net, rng, dtype, "peepholes" in name)
    batch = random_batch(net, rng, dtype, T, B)
    if "mask" in name:
        batch = batch._replace(mask=random_mask(rng, T, B))
    return name, certify(net, params, batch)


def bug_rows(
    seed: int = 0,
    cases: Iterable[int] = range(len(CASES)),
    planted: Callable[[Certified], list[Mistake]] = bugs,
) -> Rows:
    """One row for every bug in every case (the index in ``CASES``), in float32 and float64.

    ``true_z``: how far the bug itself goes, computed in float64 (where that is wide enough to
    be called exact: for float32), in units of sigma. A bug with true_z below the limit changes
    nothing that rounding could not have changed. A bug without any effect makes no row.
    """
    for number in cases:
        for dtype in DTYPES:
            name, certified = _case(number, seed, dtype)
            sigma, readings = spread(certified, dtype), Readings(certified, pairs=False)
            net, params, batch = certified.net, certified.params, certified.batch
            wide = {key: value.astype(float) for key, value in params.items()}
            wide_batch = batch._replace(
                x=batch.x.astype(float),
                y=batch.y.astype(float) if batch.y.dtype.kind == "f" else batch.y,
            )
            right: Params = {}
            true = {key: value.value for key, value in certified.named().items()}
            for bug in (CORRECT, *planted(certified)):
                with np.errstate(all="ignore"):
                    theirs = bug.run(net, params, batch)
                    exact = bug.run(net, wide, wide_batch)
                if bug is not CORRECT and all(
                    np.array_equal(theirs[key], right[key]) for key in right
                ):
                    continue
                right = right or theirs
                verdict = compare(theirs, certified, dtype=dtype, sigma=sigma, readings=readings)
                true_z = compare_values(exact, true, sigma, dtype, ()).worst.z
                yield {
                    "kind": "correct" if bug is CORRECT else "bug",
                    "what": bug.label,
                    "case": name,
                    **_sizes(net, batch),
                    "dtype": np.dtype(dtype).name,
                    "z": verdict.worst.z,
                    "true_z": true_z,
                    "worst": verdict.worst.name,
                    "verdict": verdict.verdict,
                    "convention": verdict.convention,
                }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
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


def tables(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What to keep of the rows: one line for every implementation, one for every kind of bug,
    all z (three digits), and in full the rows that are not as they should be."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["kind"], row["what"]].append(row)
    counts = [
        {"what": what, "kind": kind, **summary(group)} for (kind, what), group in groups.items()
    ]
    own = {
        "correct": ("correct", "false_alarms", "largest_z_of_correct"),
        "bug": ("bugs", "found", "hidden_in_rounding", "missed", "named", "by_their_own"),
    }
    return {
        "z": {
            kind: " ".join(f"{row['z']:.3g}" for row in rows if row["kind"] == kind) for kind in own
        },
        "correct": [
            {"what": row["what"], **{name: row[name] for name in own["correct"]}}
            for row in counts
            if row["kind"] == "correct"
        ],
        "bugs": [
            {"what": row["what"], **{name: row[name] for name in own["bug"]}}
            for row in counts
            if row["kind"] == "bug"
        ],
        "rows": [
            row for row in rows if (row["verdict"] not in ACCEPTED) == (row["kind"] == "correct")
        ],
    }
