"""Table I of Manchev & Spratling: sequences that get longer by 10 until a net fails.

Checked by: tests/studies/test_pages.py.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count, product
from typing import Any, NamedTuple

from refnet.runs.rows import table
from refnet.studies.comparison import stated
from refnet.studies.declared import FINDINGS
from refnet.studies.jobs import Job, training_run
from refnet.studies.published import place_of
from refnet.studies.study import Published, RowOf, Study, View, spread
from refnet.training.papers import SYNTHETIC, TABLE_I

__all__ = ["NETS", "TABLES", "Ladder"]

CODE, TEXT = ({"protocol": f"manchev-spratling/{name}"} for name in ("code", "text"))
SGD = {**CODE, "optimizer": "sgd"}
"""The released code with its option for the optimiser that the text names."""
NETS = {"SRNN": "plain", "SRNN+OPEN": "open", "SRNN+OINIT": "oinit"}

STEP = 10
"""From one length to the next."""
PRINTED: dict[str, dict[str, int]] = {
    "temporal-order": {"plain": 50, "open": 80, "oinit": 120},
    "temporal-order-3bit": {"plain": 50, "open": 70, "oinit": 90},
    "adding": {"plain": 80, "open": 80, "oinit": 100},
    "random-permutation": {"plain": 90, "open": 140, "oinit": 240},
}
"""The longest length solved, by problem and method."""
TITLE = "Table I of Manchev & Spratling: the longest sequence solved, in steps of 10"
CAUSES = {
    "temporal-order": "the optimiser (`causes`)",
    "adding": "the optimiser and the criterion (`causes`)",
    "random-permutation": "the optimiser and the penalty (`causes`)",
}
"""Of lengths that are not reached, by problem."""
NAMES = ("rate", "strength")
GRID = (0.1, 0.01, 0.001, 0.0001, 0.00001), (1.0, 0.1, 0.01, 0.001, 0.0001)
"""Rates and lambdas: the printed ones are among them. The text names no grid for Table I."""


class Ladder(NamedTuple):
    """The lengths that a net climbs. ``fixed``: the protocol, and what differs from it. ``chosen``:
    the rate, and OPEN's lambda; the printed ones if empty."""

    task: str
    method: str
    seed: int = 0
    quick: bool = False
    fixed: Mapping[str, str] = CODE
    chosen: tuple[float, ...] = ()

    def rung(self, length: int) -> Job:
        """The run at one length."""
        task, method, seed, quick, fixed, chosen = self
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
        return training_run(f"{task}, {method}{at}, T = {length}, seed {seed}", settings)

    def climb(self, row_of: RowOf) -> tuple[int, Job | None]:
        """The longest length solved with all shorter ones, and the next rung; None at the end."""
        for length in count(STEP, STEP):
            job = self.rung(length)
            row = row_of(job)
            if row is None or row["state"] == "begun":
                return length - STEP, None if self.quick and length > 2 * STEP else job
            if row["state"] != "solved":
                break
        return length - STEP, None


def _places(quick: bool) -> list[tuple[str, str]]:
    """The problems and methods; quick: one problem."""
    return list(product(SYNTHETIC[: 1 if quick else None], NETS.values()))


def _wanted(row_of: RowOf, ladders: Iterable[Ladder]) -> list[Job]:
    return [job for ladder in ladders if (job := ladder.climb(row_of)[1]) is not None]


def _rungs(view: View, fixed: Mapping[str, str] = CODE) -> list[Job]:
    places = product(range(view.seeds), _places(view.quick))
    return _wanted(view.row_of, (Ladder(*place, seed, view.quick, fixed) for seed, place in places))


def _table(view: View, fixed: Mapping[str, str] = CODE, name: str = "table-i") -> str:
    lines: dict[str, list[Any]] = {}
    longest: dict[str, list[int]] = {}
    for task, method in _places(view.quick):
        climbs = _climbs(view, task, method, fixed)
        longest[f"{task}, {method}"] = [reached for reached, job in climbs if job is None]
        lines.setdefault(task, [task]).extend([_reached(climbs), PRINTED[task][method]])
    header = ["longest T solved", *(part for net in NETS for part in (net, "printed"))]
    text = table(header, list(lines.values()))
    if view.quick:
        return text
    said = stated(FINDINGS.get(name, ()), longest)
    return text + "".join(f"\n{note}\n" for note in said) + _errors(view.row_of, view.seeds, fixed)


def _climbs(
    view: View, task: str, method: str, fixed: Mapping[str, str]
) -> list[tuple[int, Job | None]]:
    """How far each seed is."""
    ladders = (Ladder(task, method, n, view.quick, fixed) for n in range(view.seeds))
    return [ladder.climb(view.row_of) for ladder in ladders]


def _reached(climbs: Iterable[tuple[int, Job | None]]) -> str:
    """The lengths of ladders that have ended, and the longest of one that has not."""
    ended: list[float] = [reached for reached, job in climbs if job is None]
    begun = max((reached for reached, job in climbs if job), default=0)
    parts = [spread(ended, ".0f")] * bool(ended) + [f"at least {begun}, not finished"] * bool(begun)
    return ", ".join(parts) or "not run"


def _numbers(view: View, fixed: Mapping[str, str] = CODE, name: str = "table-i") -> list[Published]:
    """The printed lengths, and those of the ladders that have ended or have got there already."""
    nets = {method: net for net, method in NETS.items()}
    numbers = []
    for task, method in _places(view.quick):
        printed = PRINTED[task][method]
        climbs = _climbs(view, task, method, fixed)
        ended = tuple(
            float(reached) for reached, job in climbs if job is None or reached >= printed - STEP
        )
        numbers.append(
            Published(
                place_of(TITLE),
                f"{task}, {nets[method]}",
                printed,
                ended,
                name,
                STEP,
                form=".0f",
                cause=CAUSES.get(task, ""),
                ours=_reached(climbs),
            )
        )
    return numbers


CRITERIA = {"text": "errors_text", "code": "errors_code", "HS97": "errors_hs97"}


def _errors(row_of: RowOf, seeds: int, fixed: Mapping[str, str]) -> str:
    """How far adding was from each criterion at the rung that ended its ladder."""
    lines = []
    for net, method in NETS.items():
        rungs = []
        for seed in range(seeds):
            ladder = Ladder("adding", method, seed, fixed=fixed)
            reached, job = ladder.climb(row_of)
            if job is None and (row := row_of(ladder.rung(reached + STEP))) is not None:
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


def _searched(quick: bool) -> list[tuple[str, str]]:
    """The problems and methods searched; quick: without OPEN's 25 candidates."""
    return [place for place in _places(quick) if not quick or place[1] != "open"]


def _search(view: View) -> list[Job]:
    """The next rung of every candidate that has failed at none, the shortest first: all
    candidates climb side by side, so that the leader is known at any time."""
    candidates = (
        Ladder(*place, seed, view.quick, CODE, chosen)
        for seed, place in product(range(view.seeds), _searched(view.quick))
        for chosen in _grid(place[1])
    )
    return sorted(_wanted(view.row_of, candidates), key=_length)


def _length(job: Job) -> int:
    return job.config.length if job.config else 0


def _winners(view: View) -> str:
    lines, searched = [], view.quick
    for task, method in _searched(view.quick):
        reached: dict[tuple[float, ...], list[float]] = {}
        ended = 0
        candidates = list(product(_grid(method), range(view.seeds)))
        for chosen, seed in candidates:
            ladder = Ladder(task, method, seed, view.quick, CODE, chosen)
            length, job = ladder.climb(view.row_of)
            if view.row_of(ladder.rung(STEP)) is not None:
                reached.setdefault(chosen, []).append(length)
            ended += job is None
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
                f"{ended} of {len(candidates)}",
            ]
        )
    text = table(
        ["problem", "printed T", "at", "longest T solved so far", "at", "ladders ended"], lines
    )
    note = "\nOf the grid only the printed rates and lambdas were run.\n"
    return text + note * (not searched)


def _parameters(chosen: tuple[float, ...]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in zip(("alpha", "lambda"), chosen))


_ladder = partial(Study, open_ended=True)
_TEXT = _ladder(
    "table-i-text",
    "Table I of Manchev & Spratling under the protocol of their text: SGD",
    partial(_rungs, fixed=TEXT),
    partial(_table, fixed=TEXT, name="table-i-text"),
    published=partial(_numbers, fixed=TEXT, name="table-i-text"),
)
_SGD = _ladder(
    "table-i-sgd",
    "Table I of Manchev & Spratling by their released code, with SGD as in the text",
    partial(_rungs, fixed=SGD),
    partial(_table, fixed=SGD, name="table-i-sgd"),
    published=partial(_numbers, fixed=SGD, name="table-i-sgd"),
)
_SEARCH = _ladder(
    "table-i", "Table I of Manchev & Spratling: rates and lambdas searched again", _search, _winners
)


def _by_the_text(protocol: str) -> Study:
    return _TEXT


TABLES = [
    _ladder(
        "table-i", TITLE, _rungs, _table, published=_numbers, switched=_by_the_text, search=_SEARCH
    ),
    _TEXT,
    _SGD,
]
