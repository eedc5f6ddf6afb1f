"""How bugs that were planted into other programs are explained: located, named, named wrongly.

``python -m benchmarks.judge.planted --json benchmarks/results/planted.json``: each kind of bug
(``benchmarks.judge.kinds``) in float64 and in float32, in minutes.
Checked by: tests/check/test_planted.py.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.judge import implementations
from benchmarks.judge.kinds import KINDS, Kind
from refnet.batch import Batch, Params
from refnet.check import judge
from refnet.check.cases import random_batch, random_params
from refnet.check.judgement import NOT_ROUNDING
from refnet.check.tables import Row, save, show, target
from refnet.nets.recurrent import RecurrentNet

SIZES = {np.float64: (14, 6, 5), np.float32: (12, 10, 6)}
"""T, H and B of each type."""
COLUMNS = {"program": 6, "net": 16, "dtype": 8, "old": 40, "located": 8, "named": 8, "name": 0}


def text_of(kind: Kind) -> str:
    """The text of the program with the bug in it."""
    suffix = {"numpy": "cells_numpy.txt", "torch": "cells_torch.txt", "c": "cells.c"}[kind.program]
    text = Path(__file__).with_name(suffix).read_text(encoding="utf-8")
    assert kind.old in text, kind
    return text.replace(kind.old, kind.new)


@cache
def program(kind: Kind) -> Callable[..., Params]:
    """The program as a function of the parameters and the batch."""
    cell, *words = kind.net.split()
    if kind.program == "c":
        net = net_of(kind, 0)
        return lambda p, batch: implementations.in_c(net_like(net, p), p, batch, text=text_of(kind))
    names: dict[str, Callable[..., Params]] = {}
    exec(compile(text_of(kind), kind.program, "exec"), names)
    gradients = names["gradients"]
    return lambda p, batch: gradients(
        cell, "every" in words, p, *batch[: 2 + (batch.mask is not None)]
    )


def net_of(kind: Kind, H: int) -> RecurrentNet:
    """The net that the program computes."""
    cell, *words = kind.net.split()
    return RecurrentNet(3, H or 6, 4, cell, readout="every" if "every" in words else "last")


def net_like(net: RecurrentNet, p: Params) -> RecurrentNet:
    """The net with the widths of these parameters."""
    (_, H), (_, D), C = p["Whh"].shape, p["Wxh"].shape, len(p["by"])
    return replace(net, inputs=D, hidden=H, outputs=C)


def rows(kinds: list[Kind] = KINDS, seed: int = 0) -> Iterator[Row]:
    """A row for every kind in each type."""
    numbers = {kind[:4]: number for number, kind in enumerate(KINDS)}
    for kind in kinds:
        number = numbers[kind[:4]]
        for dtype, (T, H, B) in SIZES.items():
            net, rng = net_of(kind, H), np.random.default_rng([seed, number])
            params = random_params(net, rng, dtype, "peepholes" in kind.net)
            batch = random_batch(net, rng, dtype, T, B)
            if "mask" in kind.net:
                lengths = np.array([T, 3, T - 2, 1, T - 5, 2])[:B]
                batch = batch._replace(mask=np.arange(T)[:, None] < lengths)
            verdict = judge(net, program(kind), params, Batch(*batch[:3]))
            name, where = verdict.convention, "\n".join((*verdict.where, verdict.convention))
            unsure = name.startswith("perhaps")
            structure = name in verdict.where and re.search(kind.where, name)
            right = bool(structure or kind.name and re.search(kind.name, name))
            yield {
                "program": kind.program,
                "net": kind.net,
                "dtype": np.dtype(dtype).name,
                "old": kind.old[:40],
                "new": kind.new,
                "verdict": verdict.verdict,
                "located": bool(verdict.where) and bool(re.search(kind.where, where)),
                "named": "wrongly" if name and not unsure and not right else "yes" if right else "",
                "name": name,
                "where": verdict.where,
            }


def summary(given: list[Row]) -> Row:
    """How many are not rounding, located, named and wrongly named."""
    given = [row for row in given if row["verdict"] == NOT_ROUNDING]
    return {
        "kinds": len({(row["program"], row["net"], row["old"], row["new"]) for row in given}),
        "not rounding": len(given),
        "located": sum(row["located"] for row in given),
        "named": sum(row["named"] == "yes" for row in given),
        "named wrongly": sum(row["named"] == "wrongly" for row in given),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how planted bugs are explained.")
    parser.add_argument("--json", type=target, metavar="FILE", help="where the rows go")
    parser.add_argument("--only", default="", help="only kinds whose text has this in it")
    parser.add_argument("--program", default="", help="only kinds in this program")
    args = parser.parse_args()
    chosen = [
        kind for kind in KINDS if args.only in kind.old + kind.new and args.program in kind.program
    ]
    table = show(rows(chosen), COLUMNS)
    counts = summary(table)
    save(args.json, table, summary=counts)
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    return 1 if counts["named wrongly"] else 0


if __name__ == "__main__":
    sys.exit(main())
