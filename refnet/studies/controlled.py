"""Short controlled runs that look for the cause where a number of ours differs from the printed
one. One setting is changed in each, or, in those that are called "text" or "code", all that a
protocol has otherwise.

Checked by: tests/studies/test_pages.py.
"""

from refnet.runs.read import Record
from refnet.studies.findings import (
    ADDING,
    BRIEF,
    ENDS,
    FADED,
    FIRST,
    GATED,
    HELD,
    LONG,
    MORE,
    MOST,
    PIXELS,
    PRIOR,
    PTB,
    PULLED,
    RIGID,
    SHORT,
    START,
    WHOLE,
)
from refnet.studies.grid import Cell
from refnet.studies.manchev import LE_ET_AL, LSTM
from refnet.studies.vorontsov import SUMMED
from refnet.training.protocols import preset

__all__ = ["CELLS", "CODE", "CURVE", "SMALL"]

CODE, TEXT, VORONTSOV = "manchev-spratling/code", "manchev-spratling/text", "vorontsov/text"
CURVE = ("accuracy", "mse")


def _cells(
    question: str, fixed: Record, cases: dict[str, Record], quick: Record | None = None
) -> list[Cell]:
    return [
        Cell(f"{question}: {name}", {"protocol": CODE, **fixed, **case}, quick=quick or {})
        for name, case in cases.items()
    ]


RECORDED = "as recorded in Table 1"
HALVED = "adding:protocol=manchev-spratling-code"
OINIT = {"task": "sequential-mnist", "method": "oinit", "order": "shuffled"}  # as Table II's
BITS = {
    name: getattr(preset("ptb", protocol="vorontsov/code"), name)
    for name in ("optimizer", "weight_decay", "clip_at")
}
TABLE_1 = {
    "task": "sequential-mnist",
    "transition": "svd:margin=0",
    "recurrent": "orthogonal",
    "protocol": VORONTSOV,
}
SCALED = {"task": "sequential-mnist:scaling=standard,validation=10000"}
FASTER = {"rate": 1e-3}
SMALL: Record = {"orthogonal": "hidden", "input_weights": "gaussian:sd=0.01"}

CELLS = [
    *_cells(
        SHORT,
        {"task": "temporal-order", "length": 20, "iterations": 20_000},
        {
            "RMSprop at .01 (code)": {},
            "SGD at .01 (text)": {"protocol": TEXT},
            "RMSprop at .001": {"rate": 0.001},
            "RMSprop at .0001": {"rate": 0.0001},
        },
        {"task": "temporal-order:samples=1000", "iterations": 1500},
    ),
    *_cells(
        START,
        {"task": "temporal-order", "length": 20, "method": "oinit", "iterations": 20_000},
        {"RMSprop at .0001 (code)": {}, "SGD at .0001 (text)": {"protocol": TEXT}},
    ),
    *_cells(
        LONG,
        {"task": "temporal-order", "length": 120, "method": "oinit", "iterations": 8_000},
        {
            "RMSprop at .0001 (code)": {},
            "RMSprop at .001": {"rate": 0.001},
            "RMSprop at .00001": {"rate": 0.00001},
            "RMSprop at .0001, W_hh alone made orthogonal": {"orthogonal": "hidden"},
            "SGD at .0001 (text)": {"protocol": TEXT},
            "SGD at .01": {"protocol": TEXT, "rate": 0.01},
            "RMSprop at .0001, W_xh from N(0, .01)": SMALL,
        },
    ),
    *_cells(
        BRIEF,
        {"task": "adding", "length": 10, "method": "oinit", "iterations": 20_000},
        {"RMSprop at .01 (code)": {}, "the code's SGD at .01": {"optimizer": "sgd"}},
    ),
    *_cells(
        ADDING,
        {"task": "adding", "length": 100, "method": "oinit", "iterations": 8_000},
        {
            "RMSprop at .01 (code)": {},
            "SGD at .01, on the sum (text)": {"protocol": TEXT},
            "RMSprop at .001": {"rate": 0.001},
            "RMSprop at .0001": {"rate": 0.0001},
            "SGD at .01, criterion of the code": {"protocol": TEXT, "task": HALVED},
            "SGD at .01, criterion of the code, W_xh from N(0, .01)": {
                "protocol": TEXT,
                "task": HALVED,
                **SMALL,
            },
        },
    ),
    *_cells(
        ENDS,
        {
            "task": HALVED,
            "length": 100,
            "method": "oinit",
            "protocol": TEXT,
            "iterations": 100_000,
            "evaluate_every": 1000,
        },
        {"SGD at .01": {}, "SGD at .01, W_xh from N(0, .01)": SMALL},
    ),
    *_cells(
        FIRST,
        {"task": "random-permutation", "length": 100, "method": "oinit", "iterations": 30_000},
        {
            "RMSprop at .1 (code)": {},
            "the code's SGD at .1": {"optimizer": "sgd"},
            "the code's SGD at .1, with its default penalty of .1": {
                "optimizer": "sgd",
                "method": "oinit+open",
                "strength": 0.1,
            },
        },
    ),
    *_cells(
        PIXELS,
        {**OINIT, "iterations": 5_000},
        {
            "RMSprop at .00001, standardised (code)": {},
            "RMSprop at .00001, from 0 to 1": {"task": "sequential-mnist:scaling=unit"},
            "RMSprop at .0001, standardised": {"rate": 1e-4},
            "SGD at .00001, from 0 to 1 (text)": {"protocol": TEXT},
        },
    ),
    *_cells(
        MORE,
        {**OINIT, "iterations": 100_000},
        {
            "RMSprop at .00001, standardised (code)": {},
            "RMSprop at .00001, from 0 to 1": {"task": "sequential-mnist:scaling=unit"},
        },
    ),
    *_cells(
        MOST,
        {**OINIT, "iterations": 1_000_000},
        {"RMSprop at .00001, from 0 to 1": {"task": "sequential-mnist:scaling=unit"}},
    ),
    *_cells(
        FADED,
        {**LE_ET_AL, **LSTM, "iterations": 20_000},
        {
            "weights by Glorot's rule": {},
            "weights from N(0, .001)": {"weights": "gaussian:sd=0.001"},
        },
    ),
    *_cells(
        RIGID,
        {**TABLE_1, "iterations": 20_000},
        {
            RECORDED: {},
            "clipped at every step (code)": {"clip": "step"},
            "a start state that is learned (code)": {"learn_h0": True},
            "U and V fixed (code)": {"manifold_rate": 0.0},
            "no weight decay": {"weight_decay": 0.0},
            "all of the code": {"protocol": "vorontsov/code"},
            "ten times the rate": FASTER,
            "pixels standardised": SCALED,
        },
        {"iterations": 60, "evaluate_every": 60},
    ),
    *_cells(WHOLE, TABLE_1, {"pixels standardised": SCALED, "ten times the rate": FASTER}),
    *_cells(
        GATED,
        {"task": "sequential-mnist", "cell": "lstm", "protocol": VORONTSOV, "iterations": 10_000},
        {
            RECORDED: {},
            "clipped at every step": {"clip": "step"},
            "no weight decay": {"weight_decay": 0.0},
            "ten times the rate": FASTER,
            "pixels standardised": SCALED,
        },
    ),
    *_cells(
        PTB,
        {
            "task": "ptb",
            "transition": "svd:margin=0",
            "recurrent": "orthogonal",
            "protocol": VORONTSOV,
            "order": "shuffled",
            "iterations": 20 * 198,
            "evaluate_every": 5 * 198,
        },
        {
            "as recorded in Table 3": {},
            "Cayley steps at .001": {"manifold_rate": 1e-3},
            "no weight decay": {"weight_decay": 0.0},
            "losses of a sequence added": {"reduction": "batch_mean"},
            "embedding of 512 (code)": {"embedding": 512},
            "lines of all lengths mixed": {"order": "mixed"},
            "U and V fixed (code)": {"manifold_rate": 0.0},
            "a loss in bits (code)": BITS,
        },
        {"hidden": 64, "iterations": 198, "evaluate_every": 99},
    ),
    *_cells(
        PRIOR,
        {
            "task": "copy",
            "length": 200,
            "transition": "svd:margin=none,prior=0.1",
            "optimizer": "sgd",
            "rate": 1e-5,
            "protocol": VORONTSOV,
        },
        {
            "SGD at .00001 (text)": {},
            "SGD at .0001": {"rate": 1e-4},
            "losses of a sequence added": {"reduction": "batch_mean"},
            "losses of a sequence added, clipped at every step (code)": {
                "reduction": "batch_mean",
                "clip": "step",
            },
            "Nesterov's momentum of .9, clipped at every step (code)": {
                "optimizer": "nesterov",
                "clip": "step",
            },
            "inputs in one channel (code)": {"task": "copy:encoding=scalar"},
            "RMSprop at .0001 (Figure 1)": {"optimizer": "rmsprop:form=lasagne", "rate": 1e-4},
        },
        {"length": 20, "iterations": 500},
    ),
    # Figure 4's cells, and stronger constraints
    *_cells(
        HELD,
        {
            "task": "copy",
            "length": 500,
            "transition": "svd:margin=none",
            "method": "open",
            "protocol": VORONTSOV,
            "iterations": 10_000,
        },
        {
            f"lambda = {strength:,}": {"strength": float(strength)}
            for strength in (0, 1, 100, 10_000)
        },
    ),
    *_cells(
        PULLED,
        {"task": "copy", "length": 200, **SUMMED, "protocol": VORONTSOV, "iterations": 10_000},
        {
            f"strength {strength:,}": {"transition": f"svd:margin=none,prior={strength}"}
            for strength in (1, 1000, 10_000)
        },
    ),
    *_cells(
        "copy, T = 1000, clipped at every step (code)",
        {"task": "copy", "length": 1000, "clip": "step", "protocol": VORONTSOV},
        {
            f"margin {margin}": {"transition": f"svd:margin={margin}"}
            for margin in ("0.1", "1", "none")
        },
    ),
    *_cells(
        "MNIST, FF+OINIT",
        {"task": "mnist", "method": "oinit"},
        {"images in the order of the file, tested on six times as often (code)": {}},
    ),
]
