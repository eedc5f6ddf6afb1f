"""More calls of a function under judgment: with other inputs, and to see why it goes wrong.

Their results should be those of the reference in float64, which are not certified.
Checked by: tests/check/test_repeats.py, tests/check/test_judge_limits.py.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from inspect import signature

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.cases import reference_results
from refnet.check.certificates import Case, Given, certificate
from refnet.check.given import Foreign, Results, by_name, numbers
from refnet.exact.convert import in_float64
from refnet.exact.precision import float_values
from refnet.exact.running import arguments_of, mapped, run_on
from refnet.nets.gradients import Net

__all__ = [
    "Theirs",
    "arrays_of",
    "proof_of_state",
    "of_inputs",
    "other_inputs",
    "rerolled",
    "results",
    "is_wrong_at",
    "results_if_any",
]

Theirs = Callable[..., Foreign]
Inputs = tuple[Params, Batch]
NEAR = 0.01
"""How far off a result may be, of its norm, that is called right without a certificate."""


def of_inputs(function: Theirs) -> Theirs:
    """A function that is judged by a net, as one of parameters and batch: it may also take x, y
    and, if the batch has them, mask, weights and final one by one, as for ``check function``.
    TypeError for any other."""
    try:
        every = signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return function
    places = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in places)
    if least <= 2 <= len(places) or any(p.kind == p.VAR_POSITIONAL for p in every) and least <= 2:
        return function
    if not 3 <= least <= 6:
        raise TypeError(
            f"judge: theirs takes {len(places)} arguments; need theirs(params, batch) or "
            "theirs(params, x, y), with a mask theirs(params, x, y, mask)"
        )

    def one_by_one(params: Params, batch: Batch) -> Foreign:
        given = {name: part for name, part in batch._asdict().items() if part is not None}
        if not least <= len(given) + 1 <= len(places):
            raise TypeError(
                f"judge: theirs takes {len(places)} arguments, and the batch has "
                f"{'a' if 'mask' in given else 'no'} mask"
                f"{''.join(f' and {name}' for name in [*given][2:] if name != 'mask')}; "
                f"need theirs(params, batch) or theirs(params, {', '.join(given)})"
            )
        return function(params, *given.values())

    return one_by_one


def results(function: Theirs, inputs: Given, changed: list[str] | None = None) -> Foreign:
    """A copy of what a function, which may reuse its arrays, returns for copies of the inputs. The
    names of the inputs that it changes are added to ``changed``."""
    copies = deepcopy(inputs)
    returned = function(*copies)
    if changed is not None:
        pairs = zip(arrays_of(inputs).items(), arrays_of(copies).values())
        changed += [n for (n, a), b in pairs if not np.array_equal(a, b)]
    return (
        {name: _copy(value) for name, value in returned.items()}
        if isinstance(returned, Mapping)
        else returned
    )


def arrays_of(inputs: Given) -> Params:
    """The numbers among a net's or a function's inputs, by their names or places."""
    of_net = len(inputs) == 2 and isinstance(inputs[1], Batch)
    named = inputs[0] | inputs[1]._asdict() if of_net else dict(enumerate(inputs))
    every: Params = {}
    for name, value in named.items():
        what = str(name) if of_net else f"argument {name}"
        mapped(value, what, every.setdefault)
    return every


def _copy(value: Foreign) -> Foreign:
    try:
        nested = isinstance(value, (list, tuple, Mapping))
        return deepcopy(value) if nested else np.array(value, subok=True)
    except Exception:  # what NumPy cannot read: the comparison says so
        return value


def results_if_any(function: Theirs, inputs: Given, true: Params) -> dict[str, Foreign]:
    """Its results by the names of ``true``; {} if it fails there."""
    try:
        return by_name(results(function, inputs), true)
    except Exception:  # it runs with some numbers, or sizes, alone
        return {}


def _read(arrays: Results, true: Params) -> Params:
    """Those results that can be compared with ``true``, as float64."""
    return {
        name: value
        for name, given in arrays.items()
        if name in true
        and (value := numbers(given)) is not None
        and value.shape == np.shape(true[name])
    }


def _numbers(function: Theirs, inputs: Given, true: Params) -> Params:
    return _read(results_if_any(function, inputs, true), true)


def other_inputs(case: Case) -> Iterator[tuple[str, Inputs]]:
    """Other inputs of a net's shapes, and what they are."""
    if not isinstance(case.what, Net):
        return
    params, batch = case.inputs
    if any(value.dtype.kind == "O" for value in map(np.asarray, (*params.values(), batch.x))):
        return
    # not the parts of a transition: half of an orthogonal matrix is none
    half = {name: value if "." in name else _half(value) for name, value in params.items()}
    yield "half of the parameters and inputs", (half, batch._replace(x=_half(batch.x)))
    other = _other_targets(batch, _classes(case))
    lengths = " and lengths" * (other.mask is not batch.mask)
    yield f"other targets{lengths}", (params, other)


def _classes(case: Case) -> int:
    return int(_certified(case)["outputs"].shape[-1])


def _other_targets(batch: Batch, classes: int) -> Batch:
    """The same x with half of the targets or, of classes, with those that count in another order,
    and their weights with them (if there is one class alone and no weights, with the next one);
    half of the final states' cotangents; with a mask, sequences end a step earlier."""
    y, mask, weights = np.array(batch.y), batch.mask, batch.weights
    if batch.final is not None:
        batch = batch._replace(final={n: _half(value) for n, value in batch.final.items()})
    counted = np.ones(y.shape, bool)
    if mask is not None and batch.final is None:
        steps = mask.astype(bool)
        shorter = steps & (np.arange(len(steps))[:, None] < last_steps(steps) - 1)
        steps = np.where(shorter.any(axis=0), shorter, steps)
        mask = steps.astype(mask.dtype)
        if y.shape == steps.shape:
            counted = steps
    if y.dtype.kind not in "iu":
        return batch._replace(y=_half(y), mask=mask)
    labels = y[counted]
    if weights is not None:
        weights = np.array(np.broadcast_to(weights, y.shape))
        weights[counted] = np.roll(weights[counted], 1)
    if weights is not None or (labels != labels[:1]).any():
        y[counted] = np.roll(labels, 1)
    else:
        y[counted] = (labels + 1) % classes
    return batch._replace(y=y, mask=mask, weights=weights)


def _half(value: Foreign) -> Array:
    """Half of floats; integers, which name symbols or classes, as they are."""
    array = np.asarray(value)
    return array if array.dtype.kind in "iu" else np.asarray(array / 2, array.dtype)


def _true(net: Net, params: Params, batch: Batch) -> Params:
    return reference_results(
        net,
        {name: _wide(value) for name, value in params.items()},
        batch._replace(
            x=_wide(batch.x),
            y=_wide(batch.y),
            final=batch.final and {name: _wide(value) for name, value in batch.final.items()},
        ),
    )


def _wide(value: Foreign) -> Array:
    """Floats as float64; integers as they are."""
    array = np.asarray(value)
    return array if array.dtype.kind in "iu" else array.astype(float)


def _true_of_function(case: Case, inputs: Given) -> Params:
    """A function's value and gradients in float64, at other inputs."""
    f = certificate(case).function  # type: ignore[union-attr]
    results = run_on(f, arguments_of(f.f, inputs), case.cotangent, in_float64)
    return {name: np.asarray(value, float) for name, value in results.items()}


def is_wrong_at(case: Case, inputs: Inputs, arrays: Results, sigma: Params) -> bool:
    """Whether one of the results ``arrays`` at other inputs is wrong there: its error is more than
    a twentieth of the change that the right result makes from the first inputs to these."""
    former = _certified(case)
    true = _true(case.what, *inputs)
    return any(
        _moves(true[name], former[name], sigma[name])
        and not _norm(value - true[name]) <= _norm(true[name] - former[name]) / 20
        for name, value in _read(arrays, true).items()
    )


def _certified(case: Case) -> Params:
    return float_values(certificate(case).named())


def _moves(true: Array, former: Array, sigma: Array) -> bool:
    """Whether the right result changes by far more than rounding."""
    return _norm(sigma) < _norm(true - former) / 100


def _norm(array: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(array))


def _right(arrays: Params, true: Params) -> bool:
    return bool(arrays) and all(
        _norm(value - true[name]) <= NEAR * _norm(true[name]) for name, value in arrays.items()
    )


def proof_of_state(
    case: Case, function: Theirs, inputs: Inputs, arrays: Results, sigma: Params
) -> str:
    """What proves that a function keeps something between calls, or "". It was right at the inputs
    of the case, and then gave the wrong ``arrays`` at other ``inputs``.

    A function without state gives the same results whatever was called before, stays wrong with one
    more step, and follows every input that its results depend on: a result that does not follow an
    input took its value from an earlier call. Lengths equal to the number of steps prove nothing,
    because a program may ignore them.
    """
    net, (params, batch) = case.what, inputs
    former = _certified(case)
    first, there = _numbers(function, case.inputs, former), _true(net, *inputs)
    if not _right(first, former):
        return "the first inputs now give another result"
    before = _read(arrays, there)
    again = _numbers(function, inputs, there)
    if any(
        not np.array_equal(value, before[name], equal_nan=True)
        and not _norm(value - before[name]) <= NEAR * _norm(value)
        for name, value in again.items()
        if name in before
    ):
        return "the same inputs then give another result"
    longer = (params, _longer(net, batch))
    if np.ndim(batch.x) == 3 and _right(
        _numbers(function, longer, expected := _true(net, *longer)), expected
    ):
        return "with one more step it is right at once"
    unread = [
        what
        for what, mixed in _one_at_a_time(case, inputs)
        if _unmoved(net, function, mixed, first, former, sigma)
    ]
    return unread and f"{', '.join(unread)} of the first call is used" or ""


def _longer(net: Net, batch: Batch) -> Batch:
    """With the last step twice or, with a mask, one more that it leaves out."""

    def more(part: Array) -> Array:
        return np.concatenate([part, part[-1:]])

    timed = getattr(net, "readout", "last") != "last"
    mask = None if batch.mask is None else more(batch.mask)
    if mask is not None and batch.final is None:
        mask[-1] = 0
    weights = batch.weights
    if weights is not None and weights.ndim == 2:
        weights = more(weights)
    y = more(batch.y) if timed else batch.y
    return batch._replace(x=more(batch.x), y=y, mask=mask, weights=weights)


def _one_at_a_time(case: Case, inputs: Inputs) -> Iterator[tuple[str, list[Inputs]]]:
    """The case's inputs with one of them from ``inputs``, and of classes with all others, too."""
    params, batch = case.inputs
    for name, value in inputs[0].items():
        if not np.array_equal(value, params[name]):
            yield name, [({**params, name: value}, batch)]
    for name in ("x", "y", "mask"):
        value, first = getattr(inputs[1], name), getattr(batch, name)
        if value is None or np.array_equal(value, first) or name == "mask" and np.all(first):
            continue
        values = [value]
        if name == "y" and first.dtype.kind in "iu":
            C = _classes(case)
            values += [
                np.where(first < 0, first, (first + by) % C).astype(first.dtype)
                for by in range(1, min(C, 9))
            ]
        yield name, [(params, batch._replace(**{name: value})) for value in values]


def _unmoved(
    net: Net, function: Theirs, mixed: list[Inputs], first: Params, former: Params, sigma: Params
) -> bool:
    """Whether a result stays as it was at all of these inputs, although the right one moves."""
    names = set(first)
    for inputs in mixed:
        true = _true(net, *inputs)
        arrays = _numbers(function, inputs, true)
        names &= {
            name
            for name in arrays
            if _moves(true[name], former[name], sigma[name])
            and _norm(arrays[name] - first[name]) <= _norm(true[name] - former[name]) / 100
        }
    return bool(names)


def rerolled(case: Case, function: Theirs, u: float) -> bool:
    """Whether a function's errors are those of rounding: they are the same at the same inputs, and
    others at inputs that differ by some unit roundoffs ``u``, so little that the right result moves
    by less than a tenth. The errors of another formula stay as they were."""
    rng = np.random.default_rng(0)

    def near(by: float, name: str, value: Array) -> Array:
        value = np.asarray(value)
        if value.dtype.kind != "f":
            return value
        return np.asarray(value * (1 + by * rng.uniform(-1, 1, value.shape)), value.dtype)

    def errors(by: float) -> tuple[Params, Params]:
        if isinstance(case.what, Net):
            params, batch = case.inputs
            near_params = {n: v if "." in n else near(by, n, v) for n, v in params.items()}
            at: Given = (near_params, batch._replace(x=near(by, "x", batch.x)))
            true = _true(case.what, *at)
        else:
            at = tuple(mapped(value, "", partial(near, by)) for value in case.inputs)
            true = _true_of_function(case, at)
        return {
            name: value - true[name] for name, value in _numbers(function, at, true).items()
        }, true

    def alike(off: Params) -> float:
        with np.errstate(all="ignore"):
            return float(
                np.mean(
                    [
                        (off[name] * value).sum() / (_norm(off[name]) * _norm(value))
                        for name, value in here.items()
                        if name in off
                    ]
                )
            )

    here, right = errors(0)
    here = {name: value for name, value in here.items() if value.any()}
    if not here or not alike(errors(0)[0]) > 0.999:
        return False
    others = [errors(16 * u) for _ in range(3)]
    shift = np.median(
        [
            _norm(true[name] - right[name]) / _norm(right[name])
            for _, true in others
            for name in here
        ]
    )
    return bool(shift < 0.1 and np.mean([alike(off) for off, _ in others]) < 0.7)
