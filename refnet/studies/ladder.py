"""Table I of Manchev & Spratling: sequences that get longer by 10 until a net fails.

Checked by: tests/studies/test_pages.py.
"""

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

from refnet.runs.rows import table
from refnet.studies.comparison import stated
from refnet.studies.findings import FINDINGS, STEP
from refnet.studies.jobs import Job
from refnet.studies.study import RowOf, Study, spread
from refnet.training.protocols import SYNTHETIC, TABLE_I, configure

__all__ = ["NETS", "TABLES"]

CODE, TEXT = ({"protocol": f"manchev-spratling/{name}"} for name in ("code", "text"))
SGD = {**CODE, "optimizer": "sgd"}
"""The released code with its option for the optimiser that the text names."""
NETS = {"SRNN": "plain", "SRNN+OPEN": "open", "SRNN+OINIT": "oinit"}

PRINTED: dict[str, dict[str, int]] = {
    "temporal-order": {"plain": 50, "open": 80, "oinit": 120},
    "temporal-order-3bit": {"plain": 50, "open": 70, "oinit": 90},
    "adding": {"plain": 80, "open": 80, "oinit": 100},
    "random-permutation": {"plain": 90, "open": 140, "oinit": 240},
}
"""The longest length solved, by problem and method."""
NAMES = ("rate", "strength")
GRID = (0.1, 0.01, 0.001, 0.0001, 0.00001), (1.0, 0.1, 0.01, 0.001, 0.0001)
"""Rates and lambdas: the printed ones are among them. The text names no grid for Table I."""


def _rung(
    task: str,
    method: str,
    length: int,
    seed: int,
    quick: bool,
    fixed: Mapping[str, str] = CODE,
    chosen: tuple[float, ...] = (),
) -> Job:
    """``fixed``: the protocol, and what differs from it. ``chosen``: the rate, and OPEN's lambda;
    the printed ones if empty."""
    settings = {
        "task": task,
        "method": method,
        "length": length,
        "seed": seed,
        **fixed,
        **dict(zip(NAMES, chosen)),
    }
    if quick:
        settings |= {"task": f"{task}:samples=1000", "iterations": 1000}
    at = "".join(f", {value:g}" for value in chosen)
    return Job(f"{task}, {method}{at}, T = {length}, seed {seed}", configure(settings))


def _climb(
    row_of: RowOf,
    task: str,
    method: str,
    seed: int,
    quick: bool,
    fixed: Mapping[str, str] = CODE,
    chosen: tuple[float, ...] = (),
) -> tuple[int, Job | None]:
    """The longest length solved with all shorter ones, and the next rung; None at the end."""
    length = STEP
    while True:
        job = _rung(task, method, length, seed, quick, fixed, chosen)
        row = row_of(job)
        if row is None or row["state"] == "begun":
            return length - STEP, None if quick and length > 2 * STEP else job
        if row["state"] != "solved":
            return length - STEP, None
        length += STEP


def _rungs(row_of: RowOf, seeds: int, quick: bool, fixed: Mapping[str, str] = CODE) -> list[Job]:
    # quick: one problem, two rungs
    tasks = SYNTHETIC[:1] if quick else SYNTHETIC
    return [
        job
        for seed in range(seeds)
        for task in tasks
        for method in NETS.values()
        if (job := _climb(row_of, task, method, seed, quick, fixed)[1]) is not None
    ]


def _table(
    row_of: RowOf, seeds: int, quick: bool, fixed: Mapping[str, str] = CODE, name: str = "table-i"
) -> str:
    lines = []
    longest: dict[str, list[float]] = {}
    for task in SYNTHETIC[:1] if quick else SYNTHETIC:
        line: list[Any] = [task]
        for method in NETS.values():
            ended = longest[f"{task}, {method}"] = []
            open_ended: list[int] = []
            for seed in range(seeds):
                reached, job = _climb(row_of, task, method, seed, quick, fixed)
                (ended if job is None else open_ended).append(reached)
            begun = [reached for reached in open_ended if reached]
            line += [
                ", ".join(
                    [spread(ended, ".0f")] * bool(ended)
                    + [f"at least {max(begun, default=0)}, not finished"] * bool(begun)
                )
                or "not run",
                PRINTED[task][method],
            ]
        lines.append(line)
    text = table(["longest T solved", *(part for net in NETS for part in (net, "printed"))], lines)
    if quick:
        return text
    said = stated(FINDINGS.get(name, ()), longest)
    return text + "".join(f"\n{note}\n" for note in said) + _errors(row_of, seeds, fixed)


CRITERIA = {"text": "errors_text", "code": "errors_code", "HS97": "errors_hs97"}


def _errors(row_of: RowOf, seeds: int, fixed: Mapping[str, str]) -> str:
    """How far adding was from each criterion at the rung that ended its ladder."""
    lines = []
    for net, method in NETS.items():
        rungs = []
        for seed in range(seeds):
            reached, job = _climb(row_of, "adding", method, seed, False, fixed)
            last = _rung("adding", method, reached + STEP, seed, False, fixed)
            if job is None and (row := row_of(last)) is not None:
                rungs.append((reached + STEP, row["best"]))
        if rungs:
            lines.append(
                [
                    net,
                    spread([length for length, _ in rungs], ".0f"),
                    *(
                        spread([best[name] for _, best in rungs if name in best], ".0f")
                        for name in CRITERIA.values()
                    ),
                ]
            )
    return (
        "\nErrors in 10,000 answers to adding at the length that ended the ladder, by each "
        "criterion (explained in the study causes):\n\n" + table(["net", "T", *CRITERIA], lines)
        if lines
        else ""
    )


def _grid(method: str) -> list[tuple[float, ...]]:
    return list(product(*GRID[: 2 if method == "open" else 1]))


def _places(quick: bool) -> list[tuple[str, str]]:
    """The problems and methods searched; quick: one problem, without OPEN's 25 candidates."""
    return [
        (task, method)
        for task in (SYNTHETIC[:1] if quick else SYNTHETIC)
        for method in NETS.values()
        if not quick or method != "open"
    ]


def _search(row_of: RowOf, seeds: int, quick: bool) -> list[Job]:
    """The next rung of every candidate that has failed at none, the shortest first: all
    candidates climb side by side, so that the leader is known at any time."""
    wanted = [
        job
        for seed in range(seeds)
        for task, method in _places(quick)
        for chosen in _grid(method)
        if (job := _climb(row_of, task, method, seed, quick, CODE, chosen)[1]) is not None
    ]
    return sorted(wanted, key=lambda job: job.config.length if job.config else 0)


def _winners(row_of: RowOf, seeds: int, quick: bool) -> str:
    lines, searched = [], quick
    for task, method in _places(quick):
        reached: dict[tuple[float, ...], list[float]] = {}
        ended = total = 0
        for chosen in _grid(method):
            for seed in range(seeds):
                length, job = _climb(row_of, task, method, seed, quick, CODE, chosen)
                first = _rung(task, method, STEP, seed, quick, CODE, chosen)
                if row_of(first) is not None:
                    reached.setdefault(chosen, []).append(length)
                ended, total = ended + (job is None), total + 1
        searched |= any(chosen != TABLE_I[task][method] for chosen in reached)
        means = {chosen: sum(lengths) / len(lengths) for chosen, lengths in reached.items()}
        best = [chosen for chosen in means if means[chosen] == max(means.values())]
        lines.append(
            [
                f"{task}, {method}",
                PRINTED[task][method],
                _parameters(TABLE_I[task][method]),
                spread(reached[best[0]] if best else [], ".0f"),
                "; ".join(map(_parameters, best)) or "-",
                f"{ended} of {total}",
            ]
        )
    text = table(
        ["problem", "printed T", "at", "longest T solved so far", "at", "ladders ended"], lines
    )
    return (
        text
        if searched
        else (text + "\nOf the grid only the printed rates and lambdas were run.\n")
    )


def _parameters(chosen: tuple[float, ...]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in zip(("alpha", "lambda"), chosen))


_ladder = partial(Study, open_ended=True)
_TEXT = _ladder(
    "table-i-text",
    "Table I of Manchev & Spratling under the protocol of their text: SGD",
    partial(_rungs, fixed=TEXT),
    partial(_table, fixed=TEXT, name="table-i-text"),
)
_SGD = _ladder(
    "table-i-sgd",
    "Table I of Manchev & Spratling by their released code, with SGD as in the text",
    partial(_rungs, fixed=SGD),
    partial(_table, fixed=SGD, name="table-i-sgd"),
)
_SEARCH = _ladder(
    "table-i", "Table I of Manchev & Spratling: rates and lambdas searched again", _search, _winners
)


def _by_the_text(protocol: str) -> Study:
    return _TEXT


TABLES = [
    _ladder(
        "table-i",
        "Table I of Manchev & Spratling: the longest sequence solved, in steps of 10",
        _rungs,
        _table,
        switched=_by_the_text,
        search=_SEARCH,
    ),
    _TEXT,
    _SGD,
]
