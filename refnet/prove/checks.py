"""What every cell, transition, activation, task and initializer has to pass.

A check returns what it showed, in words, and raises Refuted, with what is wrong, if it fails.
``prove`` runs those of a kind. Checked by: tests/nets/test_prove.py.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params, Scalar
from refnet.cells import CELLS
from refnet.common.arguments import choice, short
from refnet.common.names import find, label, reference
from refnet.compiled.activations import known
from refnet.compiled.kernels import kernel_of
from refnet.maths.activations import ACTIVATIONS, Activation, activation
from refnet.maths.dual import dual_array, parts
from refnet.maths.losses import counted_predictions, score
from refnet.matrices.initializers import INITIALIZERS, initialize
from refnet.matrices.slots import Transition
from refnet.matrices.transitions import TRANSITIONS, transition
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import Record
from refnet.tasks import TASKS, Task, make_task
from refnet.training.optimizers import OPTIMIZERS, optimizer
from refnet.training.specs import read_spec

EPS = np.finfo(float).eps
SOFTSIGN = ACTIVATIONS["softsign"]


def _gate(a: Array, p: Params, alpha: float) -> Array:
    return (1 + SOFTSIGN.forward(a, p)) / 2


def _gate_pull(a: Array, h: Array, dh: Array, p: Params, alpha: float) -> tuple[Array, Params]:
    return SOFTSIGN.backward(a, 2 * h - 1, dh, p)[0] / 2, {}


RATIONAL_GATE = Activation("rational_gate", _gate, _gate_pull, rational=True)
"""(1 + softsign(a)) / 2: a gate's activation that is rational, in (0, 1), of generic slope."""


class Refuted(Exception):
    """A check failed; the message says what is wrong."""


class Outcome(NamedTuple):
    """A check, how it ended ("holds", "FAILS" or "skipped"), and what was shown or is wrong."""

    check: str
    outcome: str
    detail: str


def _need(holds: object, wrong: str) -> None:
    if not holds:
        raise Refuted(wrong)


def generic(rng: np.random.Generator, shape: tuple[int, ...], under: int = 97) -> Array:
    """Fractions without zeros, ties or repeated entries, so that every planted bug shows.

    >>> generic(np.random.default_rng(0), (2,)).dtype
    dtype('O')
    """
    values = rng.choice(np.arange(1, 400), size=shape, replace=False)
    signs = rng.choice([-1, 1], size=shape)
    fractions = [Fraction(value, under) for value in (values * signs).ravel().tolist()]
    return np.array(fractions, object).reshape(shape)


def _cell_is_exact(cell: Any) -> str:
    """``<w, J v> == <J' w, v>`` for the states, the push by dual numbers, array by array."""
    rng, T, B, D, H = np.random.default_rng(0), 2, 1, 2, 2
    G, gate = len(cell.GATES), {} if len(cell.GATES) == 1 else {"gate": RATIONAL_GATE}
    _need(cell.CANDIDATE in cell.GATES, f"CANDIDATE {cell.CANDIDATE!r} is none of GATES")
    shapes = {key: value.shape for key, value in cell.init(H).items()}
    shapes |= dict.fromkeys(cell.OPTIONAL, (H,))
    lead = () if cell.STATES == 1 else (cell.STATES,)
    shapes |= {"Whh": (G * H, H), "Wxh": (G * H, D), "x": (T, B, D), "h0": (*lead, B, H)}
    at, v = ({key: generic(rng, shape) for key, shape in shapes.items()} for _ in range(2))
    dh = generic(rng, (2, B, H))
    tape = cell.forward(at, at["x"], at["h0"], SOFTSIGN, **gate)
    pulled = cell.backward(at, tape, dh, SOFTSIGN, **gate)
    for key in at:
        _need(key in pulled, f"backward gives no gradient of {key}")
        tangents = {name: v[name] if name == key else 0 * v[name] for name in at}
        dual = {name: dual_array(value, tangents[name]) for name, value in at.items()}
        pushed = parts(cell.forward(dual, dual["x"], dual["h0"], SOFTSIGN, **gate).h)[1]
        share = (pulled[key] * v[key]).sum()
        _need(share, f"d{key} is zero along a generic direction")
        _need(
            (pushed[-2:] * dh).sum() == share,
            f"d{key} is not the derivative: <dh, J v> - <d{key}, v> is "
            f"{float((pushed[-2:] * dh).sum() - share):.3g}, which has to be 0",
        )
    return f"<w, J v> == <J' w, v> on fractions, for {', '.join(at)}"


def push_minus_pull(
    matrix: Transition,
    at: Params,
    direction: Params,
    cotangent: Array,
    pull_back: Callable[..., Params] | None = None,
) -> Scalar:
    """``<w, J v> - <J' w, v>`` of a transition, the push by dual numbers.

    >>> one = {"M": np.array([[Fraction(1)]])}
    >>> int(push_minus_pull(transition("orthogonal"), one, one, one["M"]))
    0
    """
    lifted = {part: dual_array(value, direction[part]) for part, value in at.items()}
    pushed = parts(matrix.matrix(lifted)[0])[1]
    grads = (pull_back or type(matrix).pull_back)(matrix, at, matrix.matrix(at)[1], cotangent)
    _need(set(grads) == set(at), f"pull_back gives {', '.join(grads)}; need {', '.join(at)}")
    return (pushed * cotangent).sum() - sum((grads[part] * direction[part]).sum() for part in at)


def complex_step_error(
    matrix: Transition,
    at: Params,
    direction: Params,
    cotangent: Array,
    pull_back: Callable[..., Params] | None = None,
) -> float:
    """|push - pull| of a transition in units of eps times the size of what is added up.

    >>> one = {"M": np.array([[1.0]])}
    >>> float(complex_step_error(transition("orthogonal"), one, one, one["M"]))
    0.0
    """
    step = 2.0**-300
    lifted = {part: value + 1j * step * direction[part] for part, value in at.items()}
    push = matrix.matrix(lifted)[0].imag / step
    grads = (pull_back or type(matrix).pull_back)(matrix, at, matrix.matrix(at)[1], cotangent)
    size = 1 + (abs(push) * abs(cotangent)).sum()
    size += sum((abs(grads[part]) * abs(direction[part])).sum() for part in at)
    pulled = sum((grads[part] * direction[part]).sum() for part in at)
    return float(abs((push * cotangent).sum() - pulled) / (EPS * size))


def _transition_is_pulled_back(matrix: Transition) -> str:
    rng = np.random.default_rng(1)
    start = matrix.init(initialize("orthogonal", (4, 4), rng))
    shapes = {part: np.shape(value) for part, value in start.items()}
    _need(shapes == matrix.shapes(4, 4), f"init gives {shapes}, shapes says {matrix.shapes(4, 4)}")
    constant = getattr(matrix, "constant", ())
    moves = {part: part not in constant for part in shapes}
    if matrix.rational:
        at, v = ({part: generic(rng, shapes[part]) for part in shapes} for _ in range(2))
        v = {part: v[part] * moves[part] for part in shapes}
        off = push_minus_pull(matrix, at, v, generic(rng, (4, 4)))
        _need(off == 0, f"pull_back is not the transpose: off by {float(off):.3g} on fractions")
        return f"<w, J v> == <J' w, v> on fractions, for {', '.join(shapes)}"
    at = {
        part: value + 0.3 * moves[part] * rng.normal(size=shapes[part])
        for part, value in start.items()
    }
    v = {part: moves[part] * rng.normal(size=shapes[part]) for part in shapes}
    error = complex_step_error(matrix, at, v, rng.normal(size=(4, 4)))
    _need(error <= 1000, f"pull_back is not the transpose: off by {error:.3g} eps")
    return f"complex step: off by {error:.3g} eps, allowed 1000"


def _activation_is_pulled_back(act: Activation) -> str:
    """On fractions if it is rational, else by the complex step if it is smooth."""
    rng = np.random.default_rng(0)
    p = {name: generic(rng, shape(4)) for name, shape, _ in act.start}
    nan = {name: value.astype(float) for name, value in p.items()}
    h = act.forward(np.full(4, np.nan), nan)
    _need(np.isnan(h).all(), "the value at NaN is not NaN")
    narrow = {name: value.astype(np.float32) for name, value in p.items()}
    _need(
        act.forward(np.ones(4, np.float32), narrow).dtype == "f4", "float32 does not stay float32"
    )
    if act.rational:
        at = {**p, "a": generic(rng, (3, 4))}
        v = {name: generic(rng, value.shape) for name, value in at.items()}
        dual = {name: dual_array(value, v[name]) for name, value in at.items()}
        dh = generic(rng, (3, 4))
        pushed = parts(act.forward(dual.pop("a"), dual))[1]
        da, grads = act.backward(at["a"], act.forward(at["a"], p), dh, p)
        pulled = (da * v["a"]).sum() + sum(np.sum(grads[name] * v[name]) for name in p)
        _need((pushed * dh).sum() == pulled, "backward is not the derivative on fractions")
        return "<w, J v> == <J' w, v> on fractions; NaN stays"
    if act.smooth:
        a, step = rng.normal(size=64), 2.0**-300
        slope = act.forward(a + 1j * step, nan).imag / step
        error = abs(act.backward(a, act.forward(a, nan), np.ones(64), nan)[0] - slope).max() / EPS
        _need(error <= 100, f"backward is not the derivative: off by {error:.3g} eps")
        return f"complex step: off by {error:.3g} eps, allowed 100; NaN stays"
    return "NaN stays; the derivative is certified below"


def certified(net: RecurrentNet) -> str:
    """The gradients in balls of 900 bits meet a central difference of the loss along a direction,
    whose truncation error, with a step of 2^-200, is below 2^-390 times a third derivative."""
    import flint

    from refnet.exact import balls, certify, lift
    from refnet.exact.convert import lift_all

    rng = np.random.default_rng(3)
    net = replace(net, backend="reference")
    params = net.init(rng, np.float64, recurrent="orthogonal")
    params = {key: value + rng.uniform(-0.3, 0.3, value.shape) for key, value in params.items()}
    batch = Batch(rng.normal(size=(4, 2, net.inputs)), rng.integers(0, net.outputs, 2))
    constant = getattr(net.transition, "constant", ())
    with balls.precision(900):
        proved = certify(net, params, batch, bits=900).gradients
        direction = {
            key: rng.normal(size=value.shape) * (key.rpartition(".")[2] not in constant)
            for key, value in params.items()
        }
        step = flint.arb((1, -200))

        def loss(sign: int) -> Scalar:
            at = lift_all(params, "ball")
            for key, d in direction.items():
                at[key] = np.asarray(at[key] + lift(d, "ball") * (sign * step), object)
            outputs, _ = net.forward(at, lift(batch.x, "ball"))
            counted = counted_predictions(None, (2,), "mean")
            return score(net.loss, outputs, batch.y, *counted)[0].item()

        push = (loss(1) - loss(-1)) / (2 * step)
        pull = sum(np.sum(lift(d, "ball") * proved[key].exact) for key, d in direction.items())
        off = abs(float(push - pull))
    _need(off < 1e-80, f"backward is not the derivative: off by {off:.3g} along a direction")
    return f"gradients in balls meet a central difference, off by {off:.1g}, allowed 1e-80"


def _backends_agree(net: RecurrentNet) -> str:
    rng = np.random.default_rng(5)
    start = net.init(rng, np.float64)
    start = {key: value + rng.normal(size=value.shape) / 4 for key, value in start.items()}
    x, y = rng.normal(size=(5, 19, net.inputs)), rng.integers(0, net.outputs, 19)
    mask = np.arange(5)[:, None] < rng.integers(1, 6, 19)
    for dtype in ("f4", "f8"):
        params = {key: value.astype(dtype) for key, value in start.items()}
        want, got = (
            loss_and_gradients(
                replace(net, backend=backend), params, Batch(x.astype(dtype), y, mask)
            ).gradients
            for backend in ("reference", "compiled")
        )
        for key, value in want.items():
            allowed, off = 256 * np.finfo(dtype).eps * abs(value).max(), abs(got[key] - value).max()
            _need(off <= allowed, f"KERNEL's d{key} is off by {off:.3g}; allowed {allowed:.3g}")
    return "the kernel's gradients are the reference's, in float32 and float64"


def _batches_are_declared(task: Task) -> str:
    """A function of the seed and the index alone, of the declared widths and types."""
    first, again, other = task.batch(7, 20, 5), task.batch(7, 20, 5), task.batch(8, 20, 5)
    for key in "xy":
        same = getattr(first, key).tobytes() == getattr(again, key).tobytes()
        _need(same, f"batch(7, 20, seed=5) gives another {key} the second time")
    _need(first.x.tobytes() != other.x.tobytes(), "batches 7 and 8 are the same")
    dtype, classes = task.dtype, task.loss == "cross_entropy"  # type: ignore[attr-defined]
    last = first.x.shape[-1]
    integers = first.x.dtype.kind in "iu" and task.readout != "none"
    _need(integers or last == task.inputs, f"x has the width {last}; inputs is {task.inputs}")
    _need(integers or first.x.dtype == dtype, f"x is {first.x.dtype}; the option dtype is {dtype}")
    lead: tuple[int, ...] = (20,) if task.readout == "none" else first.x.shape[:2]
    _need(lead[-1] == 20, f"a batch of 20 has x of shape {first.x.shape}")
    steps = lead if task.readout == "every" else (20,)
    shape = steps if classes else (*steps, task.outputs)
    _need(first.y.shape == shape, f"y has shape {first.y.shape}; need {shape}")
    if classes:
        kind = first.y.dtype.kind in "iu" and first.y.min() >= 0 and first.y.max() < task.outputs
        _need(kind, f"y is not integers in 0 to {task.outputs - 1}")
    return f"x {first.x.shape}, y {first.y.shape}; batch(i, size, seed) gives the same bits again"


def _evaluation_is_scored(task: Task) -> str:
    totals: dict[str, float] = {}
    first, again = (next(iter(task.evaluation(0, 5))) for _ in range(2))
    _need(first.x.tobytes() == again.x.tobytes(), "evaluation(0, seed=5) differs the second time")
    lead = first.y.shape if task.loss == "cross_entropy" else first.y.shape[:-1]
    outputs = np.zeros((*lead, task.outputs), first.y.dtype if first.y.dtype.kind == "f" else "f4")
    totals |= task.score(outputs, first)
    figures = task.metrics(totals)
    _need(task.metric in figures, f"metrics gives {', '.join(figures)}, not metric {task.metric!r}")
    _need("test" in task.splits, "splits has no 'test'")
    return f"{task.metric} of outputs that are all 0: {figures[task.metric]:.3g}"


def _draws(name: str, options: Record) -> str:
    first, again = (initialize(name, (4, 4), np.random.default_rng(0), **options) for _ in range(2))
    _need(first.shape == (4, 4) and first.dtype == "f8", "need a float64 matrix of the shape given")
    _need(np.isfinite(first).all(), "an entry is not finite")
    _need((first == again).all(), "the same generator gives another matrix the second time")
    return "float64 of the shape given, finite, the same for the same seed"


def _steps(name: str, options: Record) -> str:
    rule = optimizer(name, 0.1, **options)
    params = {"W": np.arange(4, dtype=np.float32).reshape(2, 2)}
    state = rule.init(params)
    runs = [rule.step(params, {"W": params["W"] - 1}, state) for _ in range(2)]
    (after, states), (again, _) = runs
    _need((params["W"].ravel() == np.arange(4)).all(), "step changes its arguments")
    _need((after["W"] == again["W"]).all(), "the same step gives other bits the second time")
    _need(after["W"].dtype == "f4", f"float32 becomes {after['W'].dtype}")
    _need(states.keys() == state.keys(), f"the state's names become {', '.join(states)}")
    step = after["W"] - params["W"]
    _need((step * (params["W"] - 1)).sum() < 0, "the first step does not descend")
    return "descends; the dtype and the arguments stay; the same bits again"


Checks = dict[str, Callable[[], str]]
NET = RecurrentNet(2, 4, 3)


def _of_cell(name: str, options: Record) -> Checks:
    net = RecurrentNet(2, 4, 3, cell=name)
    return {
        "exact transposition": partial(_cell_is_exact, CELLS[name]),
        "certified gradients": partial(certified, net),
        **({"both backends": partial(_backends_agree, net)} if kernel_of(name) else {}),
    }


def _of_transition(name: str, options: Record) -> Checks:
    matrix = transition(name, **options)
    if matrix is None:
        return {}
    return {
        "exact transposition": partial(_transition_is_pulled_back, matrix),
        "certified gradients": partial(certified, replace(NET, transition=matrix)),
    }


def _of_activation(name: str, options: Record) -> Checks:
    net = replace(NET, activation=activation(name, **options))
    return {
        "exact transposition": partial(_activation_is_pulled_back, net.activation),
        "certified gradients": partial(certified, net),
        **({"both backends": partial(_backends_agree, net)} if known(net.activation) else {}),
    }


def _of_task(name: str, options: Record) -> Checks:
    task = make_task(name, **options)
    return {
        "batches": partial(_batches_are_declared, task),
        "evaluation": partial(_evaluation_is_scored, task),
    }


def _of_initializer(name: str, options: Record) -> Checks:
    return {"matrices": partial(_draws, name, options)}


def _of_optimizer(name: str, options: Record) -> Checks:
    return {"step": partial(_steps, name, options)}


KINDS: dict[str, tuple[Any, str, Callable[[str, Record], Checks]]] = {
    "task": (TASKS, "task", _of_task),
    "cell": (CELLS, "cell", _of_cell),
    "transition": (TRANSITIONS, "transition", _of_transition),
    "activation": (ACTIVATIONS, "activation", _of_activation),
    "initializer": (INITIALIZERS, "weights", _of_initializer),
    "optimizer": (OPTIMIZERS, "optimizer", _of_optimizer),
}
"""Kind -> its table, a setting that takes its names, and its checks."""


def _kind(text: str) -> str:
    if reference(text):
        value = find(text)
        # a class that fits no kind is told what it lacks for the nearest one
        kind = min(KINDS, key=lambda kind: len(KINDS[kind][0].lacks(value)))
        if KINDS[kind][0].lacks(value) and not isinstance(value, type):
            raise ValueError(
                f"prove: {label(text)} is {short(value)}; need one of {', '.join(KINDS)}, "
                "of which python -m refnet new KIND prints an example"
            )
        return kind
    names = {name: kind for kind, (table, *_) in KINDS.items() for name in table}
    choice("prove:", label(text), names)
    return names[label(text)]


def prove(text: str) -> list[Outcome]:
    """The checks of what a name, a reference or a spec with options stands for, and how they end.

    Raises ValueError for a name that is not known and for an object that is of no kind.

    >>> [(check, outcome) for check, outcome, _ in prove("temporal-order:length=20")]
    [('batches', 'holds'), ('evaluation', 'holds')]
    """
    table, setting, checks = KINDS[_kind(text)]
    name, options = read_spec(setting, text)
    outcomes = []
    for check, run in checks(name, options).items():
        try:
            outcomes.append(Outcome(check, "holds", run()))
        except ModuleNotFoundError as error:
            outcomes.append(Outcome(check, "skipped", f"needs refnet[certify] ({error})"))
        except Refuted as error:
            outcomes.append(Outcome(check, "FAILS", str(error)))
        except Exception as error:
            outcomes.append(Outcome(check, "FAILS", f"{type(error).__name__}: {error}"))
    return outcomes
