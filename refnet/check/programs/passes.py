"""Passes with changes of ``refnet.check.naive``: what a mistake of ``refnet.check.mistakes`` gives.

Recurrent cells run many at once, as edits of one program (``runs``); feedforward nets and stacks
run one after the other. ``refnet.check.mistakes.base`` and ``fitting`` run their mistakes here.

Checked by: tests/check/test_naive.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.naive.base import Change, Pass, Product
from refnet.check.naive.nets import Feedforward, Recurrent
from refnet.check.naive.stacked import Stack
from refnet.check.programs.edit import Candidate, together
from refnet.check.programs.program import Program
from refnet.check.programs.runs import Runs
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["covers", "run", "runs"]

APART = (ValueError, IndexError, KeyError)
"""The errors of changes that do not go together."""


def run(
    net: Net,
    params: Params,
    batch: Batch,
    *changes: Change,
    product: Product = np.matmul,
    backward: bool = True,
) -> Params:
    """Loss, outputs, states and gradients by the names of ``Certified.named``, in the dtype of x.

    ``product``: what multiplies matrices; ``backward``: whether the gradients are wanted.
    """
    return _results([_pass(net, params, batch, changes, product, backward)])[0]


def runs(
    net: Net, params: Params, batch: Batch, every: Iterable[Sequence[Change]], backward: bool = True
) -> Iterator[Params | None]:
    """``run`` with each of several lists of changes; None if they do not go together."""
    T, B = (1, *batch.x.shape[:-1])[-2:]
    widths = (value.shape[-1] for value in params.values() if value.ndim)
    every, most = iter(every), together(T, B, max(widths, default=1))
    while some := list(islice(every, most)):
        outcomes: dict[int, Params] = {}
        groups: dict[object, list[tuple[int, Pass]]] = {}
        for n, changes in enumerate(some):
            with suppress(*APART):
                s = _pass(net, params, batch, changes, np.matmul, backward)
                groups.setdefault(s.key, []).append((n, s))
        for group in groups.values():
            numbers, passes = zip(*group)
            try:
                outcomes |= zip(numbers, _results(passes))
            except APART:
                for n in numbers:
                    with suppress(*APART):
                        outcomes[n] = run(net, params, batch, *some[n], backward=backward)
        yield from (outcomes.get(n) for n in range(len(some)))


def _pass(net: Net, params: Params, batch: Batch, changes: Sequence[Change], *how: Any) -> Pass:
    kind: type[Pass] = Feedforward
    if isinstance(net, RecurrentNet):
        kind = Stack if isinstance(net, StackedNet) else Recurrent
    return kind(net, params, batch, tuple(changes), *how)


def _results(passes: Sequence[Pass]) -> list[Params]:
    """What passes with the same ``key`` give."""
    recurrent = [s for s in passes if isinstance(s, Recurrent)]
    if not recurrent:
        return [s.run() for s in passes]
    program = Program(recurrent[0])
    for s in passes:
        s.program = program
    edits = [(*s.at("lines", []), *s.at("pulls", [])) for s in passes]
    runs = Runs(program, [Candidate("", e, s) for e, s in zip(edits, recurrent)])
    if passes[0].backward:
        return [s.at("report", results) for s, (_, results) in zip(passes, runs.gradients())]
    runs.states()
    return [{name: r[name] for name in ("loss", "outputs")} for r in runs.read_out()[1]]


def covers(net: Net, params: Params) -> bool:
    """Whether ``run`` can run this net: a feedforward net, a stack, or one layer of the four cells
    with sigmoid gates."""
    if isinstance(net, (StackedNet, FeedforwardNet)):
        return True
    return (
        type(net) is RecurrentNet
        and net.cell in ("rnn", "lstm", "gru", "gru_before")
        and net.gate.name == "sigmoid"
        and net.clip_forward is None
        and not net.projection
        and "bhh" not in params
    )
