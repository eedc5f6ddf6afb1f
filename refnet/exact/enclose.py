"""Certified gradients: the reference itself, run on balls until every entry is decided.

Checked by: tests/exact/test_certify.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from time import perf_counter
from typing import Unpack

import numpy as np

from refnet.batch import Array, Batch, Params, Scalar
from refnet.common.arguments import one_of, optional, takes
from refnet.exact.condition import condition
from refnet.exact.convert import Lift, lift, lift_all
from refnet.exact.parts import Progress as Progress, for_each, halves, joined, side_by_side
from refnet.exact.precision import (
    LIMITS,
    MAX_BITS,
    Enclosure,
    Enclosures,
    Limits,
    admit_limits,
    exactly,
    search,
)
from refnet.maths.kinds import fix, kind as kind_of
from refnet.maths.losses import Loss, counted_predictions
from refnet.maths.numeric import Number
from refnet.nets.base import NetTape
from refnet.nets.curvature import fvp, gnvp
from refnet.nets.gradients import RULES, Net, Penalty, hvp, jvp, scored, with_final
from refnet.nets.padding import settled
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.states import state_jacobians


@dataclass(frozen=True, eq=False)
class Certified:
    """What ``certify`` proved about one net on one batch, and that net and batch.

    ``loss`` (); ``outputs``; ``states``: "h" (T + 1, B, H) and the LSTM's "c", or "h1", "h2",
    ... (B, H) of a feedforward net; ``gradients`` by parameter and for "h0" and "x".
    ``kind``: "ball" or "rational"; ``bits``: the precision that sufficed (0 for rationals).
    ``seconds``: what it took; ``penalty`` and ``divisor`` as given.

    Checked by: tests/exact/test_certify.py::test_balls_contain_rationals.
    """

    net: Net
    params: Params
    batch: Batch
    loss: Enclosure
    outputs: Enclosure
    states: Enclosures
    gradients: Enclosures
    kind: str
    bits: int
    seconds: float
    penalty: Penalty | None = None
    divisor: Number | None = None

    def __repr__(self) -> str:
        how = f"{self.bits} bits" if self.bits else "rationals"
        return f"<certified by {how}: {', '.join(self.named())} of {self.net!r}>"

    def run(self, lifted: Lift) -> Params:
        """Every quantity, by its name, computed on the numbers that ``lifted`` makes."""
        return run_on(self.net, self.params, self.batch, lifted, self.divisor, self.penalty)

    def jvp(self, direction: Params, **limits: Unpack[Limits]) -> Enclosures:
        """Tangents of "outputs" and "loss" along a direction, as ``refnet.jvp`` has them, with
        proved enclosures; ``limits`` as for ``certify``."""

        def run(params: Params, batch: Batch, along: Params) -> Params:
            outputs, loss = jvp(self.net, params, batch, along, self.penalty, self.divisor)
            return {"outputs": outputs, "loss": loss}

        return self._derived(run, direction, limits)

    def hvp(self, direction: Params, **limits: Unpack[Limits]) -> Enclosures:
        """The Hessian times a direction, by the names of ``gradients``, as ``refnet.hvp`` has it,
        with proved enclosures.

        Checked by: tests/exact/test_second_order.py.
        """
        return self._product(hvp, direction, limits)

    def gnvp(self, direction: Params, **limits: Unpack[Limits]) -> Enclosures:
        """The Gauss-Newton matrix times a direction, as ``refnet.gnvp`` has it."""
        return self._product(gnvp, direction, limits)

    def fvp(self, direction: Params, **limits: Unpack[Limits]) -> Enclosures:
        """The Fisher matrix times a direction, as ``refnet.fvp`` has it."""
        return self._product(fvp, direction, limits)

    def _product(
        self, product: Callable[..., Params], direction: Params, limits: Limits
    ) -> Enclosures:
        def run(params: Params, batch: Batch, along: Params) -> Params:
            return product(self.net, params, batch, along, self.penalty, self.divisor)

        return self._derived(run, direction, limits)

    def state_jacobians(self, **limits: Unpack[Limits]) -> Enclosure:
        """``dh_T / dh_t`` of a recurrent net, (T + 1, B, S, S), as ``refnet.state_jacobians``."""
        if not isinstance(self.net, RecurrentNet):
            raise TypeError("state_jacobians: a feedforward net has no steps; need a recurrent net")
        net = self.net

        def run(params: Params, batch: Batch, along: Params) -> Params:
            return {"J": state_jacobians(net, params, batch.x)}

        return self._derived(run, {}, limits)["J"]

    def _derived(
        self, run: Callable[[Params, Batch, Params], Params], direction: Params, limits: Limits
    ) -> Enclosures:
        """What ``run`` gives on exact numbers."""
        admit_limits("certify", limits)

        def numbers() -> Params:
            y, weights, x = self.batch.y, self.batch.weights, self.batch.x
            symbols = x.dtype.kind in "iu"
            batch = self.batch._replace(
                x=x if symbols else lift(x, self.kind, "x"),
                y=y if self.net.loss == "cross_entropy" else lift(y, self.kind, "y"),
                weights=None if weights is None else lift(weights, self.kind, "weights"),
                final=lift_all(self.batch.final or {}, self.kind),
            )
            results = run(lift_all(self.params, self.kind), batch, lift_all(direction, self.kind))
            kind_of(*results.values())
            return {name: value.astype(object, copy=False) for name, value in results.items()}

        if self.kind == "rational":
            return exactly(numbers())
        limits = {"bits": self.bits, "max_bits": MAX_BITS, **limits}
        return search(numbers, "certify", limits, 2, None)[0]

    def condition(self, ulp: float = 2.0**-52, inputs: tuple[str, ...] = ()) -> Params:
        """How far one ulp in the inputs moves every entry, by the names of ``named``: see
        ``refnet.exact.condition``. ``inputs``: the names of the inputs, "x" or parameters; all of
        them if it is empty."""
        return condition(self.run, inputs or ("x", *self.params), ulp)

    def named(self) -> Enclosures:
        """Every quantity by one name: loss, outputs, h, c, and each gradient as d + name."""
        return {
            "loss": self.loss,
            "outputs": self.outputs,
            **self.states,
            **{f"d{name}": value for name, value in self.gradients.items()},
        }


@takes(**RULES, **LIMITS, kind=optional(one_of(("ball", "rational"))))
def certify(
    net: Net,
    params: Params,
    batch: Batch,
    *,
    kind: str | None = None,
    progress: Progress | None = None,
    penalty: Penalty | None = None,
    divisor: Number | None = None,
    **limits: Unpack[Limits],
) -> Certified:
    """Loss, outputs, states and gradients with proved enclosures.

    The inputs are taken at their exact binary values; the reference's own source runs on
    python-flint's balls (extra ``certify``), with the precision doubled, up to ``max_bits``,
    until both ends of every ball round to the same float64 (``radius=None``) or no radius is
    above ``radius``. A value halfway between two float64, within 2^-64 of their distance, is
    rounded to the even one. The precision starts at ``bits``, by default 128 + 4.5 T (balls widen
    by about two bits a step in each direction of time); beyond 50 steps it is chosen by what the
    first ones lose. Over more than 200 steps errors that go through the recurrent weights are not
    widened entry by entry but followed by their norms, if the net admits it:
    ``refnet.exact.transport``.

    ``penalty`` and ``divisor`` as in ``loss_and_gradients``, such as an experiment's; the penalty
    gets exact numbers. ``kind``: "ball"; "rational" for exact results in fmpq, where activation,
    loss, transition and penalty are rational; None takes rationals if params holds Fraction or
    fmpq already and the net is rational, else balls.
    ``limits``: ``radius``, ``bits``, ``max_bits`` (65536) and ``max_seconds`` (600); if the last
    two do not suffice, ArithmeticError, which names the first
    entry that is not decided, or TimeoutError. A kink that stays inside a ball can only be decided
    by rationals. ValueError for entries that are not finite real numbers.

    >>> net = RecurrentNet(inputs=1, hidden=2, outputs=2)
    >>> params = net.init(np.random.default_rng(0))
    >>> batch = Batch(np.ones((3, 1, 1), np.float32), np.array([1]))
    >>> certified = certify(net, params, batch)
    >>> bool((certified.gradients["Whh"].radius < 1e-30).all())
    True

    Checked by: tests/exact/test_certify.py::test_balls_contain_rationals, ::test_784_steps.
    """
    started = perf_counter()
    admit_limits("certify", limits)
    net.admit("certify", params, batch.x, batch.mask)
    net, batch = _as_reference(net, batch)
    rational = _is_rational(net)
    if kind is None:
        given = any(value.dtype == object for value in params.values())
        kind = "rational" if given and rational else "ball"
    if kind == "rational" and not rational:
        raise ValueError(
            "certify: this net is not rational (its activation, loss, cell or "
            "transition); use kind='ball'"
        )
    if kind == "rational":
        named, bits = exactly(_run(net, params, batch, kind, divisor, penalty)), 0
    else:
        named, bits = _searched(net, params, batch, divisor, penalty, limits, progress)
    proved = certified_of(net, params, batch, named, kind, bits, perf_counter() - started)
    return replace(proved, penalty=penalty, divisor=divisor)


def _searched(
    net: Net,
    params: Params,
    batch: Batch,
    divisor: Number | None,
    penalty: Penalty | None,
    limits: Limits,
    progress: Progress | None,
) -> tuple[Enclosures, int]:
    """Every quantity in balls that are decided, and the bits that this took."""
    from refnet.exact import balls

    run = net
    if isinstance(net, RecurrentNet) and len(batch.x) > FOLLOWED:
        from refnet.exact.transport import followed

        run = followed(net)
    bits = limits.get("bits") or _start_bits(run, params, batch, run is not net)

    def attempt() -> Params:
        tried = run if balls.bits()[0] <= FOLLOWED_BITS else net
        return _balls(tried, params, batch, divisor, penalty)

    limits = {"max_bits": MAX_BITS, **limits, "bits": bits}
    return search(attempt, "certify", limits, 2, progress)


def _as_reference(net: Net, batch: Batch) -> tuple[Net, Batch]:
    """The net on the reference backend without checkpoints, and the batch in finite numbers."""
    net = replace(net, backend="reference")
    if isinstance(net, RecurrentNet):
        return replace(net, checkpoint="none"), settled(batch, net)
    return net, batch


def _run(
    net: Net,
    params: Params,
    batch: Batch,
    kind: str,
    divisor: Number | None = None,
    penalty: Penalty | None = None,
) -> Params:
    def lifted(array: Array, name: str) -> Array:
        return fix(lift(array, kind, name))

    results = run_on(net, params, batch, lifted, divisor, penalty)
    # NumPy makes an int64 array of a lone exact zero
    results = {name: value.astype(object, copy=False) for name, value in results.items()}
    kind_of(lift(batch.x, kind), *results.values())  # refuses a float, which no proof would cover
    return results


LONG, FIRST = 50, (8, 24)
"""Of longer sequences these first steps predict the precision, or an eighth and a quarter of all
where errors are followed."""
FOLLOWED = 200
"""Sequences of more steps than that have their errors followed; it takes longer for shorter ones.
"""
FOLLOWED_BITS = 840
"""With more bits than that balls alone decide: errors that could not be followed so far never
will be."""
WORK = 3e6
"""The multiplications of a step, times steps, from which on a batch is computed in halves."""


def _start_bits(net: Net, params: Params, batch: Batch, followed: bool) -> int:
    """The precision that should suffice: 123 bits besides what the steps of the first sequence
    lose, for the rounding of millions of numbers, the smallest of which know fewer bits than most,
    and for sequences that lose some more."""
    steps = len(batch.x) if isinstance(net, RecurrentNet) else net.depth
    if steps <= LONG or not isinstance(net, RecurrentNet):
        return int(128 + 4.5 * steps)
    first, second = (steps // 8, steps // 4) if followed else FIRST
    try:
        lost = partial(_lost, net, params, batch)
        results = side_by_side(partial(lost, first), partial(lost, second))
    except (ArithmeticError, np.linalg.LinAlgError):  # the search says what, if it stays so
        return int(128 + 4.5 * steps)
    short, long = (float(result["lost"]) for result in results)
    slope = max(long - short, 0) / (second - first)
    return int(123 + long + 1.05 * slope * (steps - second))


def _lost(net: RecurrentNet, params: Params, batch: Batch, steps: int) -> Params:
    """The bits that the first steps of one sequence lose in most entries of a quantity."""
    from refnet.exact import balls

    single = {
        name: value[..., :1, :] if for_each(net, name, value) else value
        for name, value in params.items()
    }
    y = np.zeros(1, int) if net.readout == "last" else np.zeros((steps, 1), int)
    if net.loss != "cross_entropy":
        y = np.zeros((*y.shape, net.outputs))
    # replace() loses layers that follow errors; a net with noise has none
    quiet = net if net.noise is None else replace(net, noise=None)
    with balls.precision(512):
        results = _run(quiet, single, Batch(batch.x[:steps, :1], y), "ball")
    lost = [0.0]
    for value in results.values():
        entries = [ball for ball in map(balls.arb, value.ravel().tolist()) if not ball.is_exact()]
        if entries:
            lost.append(np.median([512 - ball.rel_accuracy_bits() for ball in entries]))
    return {"lost": np.clip(max(lost), 0, 512)}


def _balls(
    net: Net,
    params: Params,
    batch: Batch,
    divisor: Number | None = None,
    penalty: Penalty | None = None,
) -> Params:
    """Every quantity as balls."""
    if (
        not isinstance(net, RecurrentNet)
        or net.noise is not None
        or batch.x.shape[1] < 2
        or (batch.x[..., 0].size * len(net.gates) * net.hidden**2 < WORK)
    ):
        return _run(net, params, batch, "ball", divisor, penalty)
    from refnet.exact.balls import shortened, waiting

    lead = batch.x.shape[1:2] if net.readout == "last" else batch.x.shape[:2]
    weights = None if batch.weights is None else lift(batch.weights, "ball", "weights")
    natural = counted_predictions(batch.mask, lead, net.reduction, weights)[1]
    common = natural if divisor is None else divisor
    first, second = halves(net, params, batch)

    def short_second() -> Params:
        """No more bits than the decisions take, as these numbers travel."""
        return shortened(_run(net, *second, "ball", common))

    run_first = partial(_run, net, *first, "ball", common, penalty)
    return joined(net, params, *side_by_side(run_first, short_second, waiting))


def _is_rational(net: Net) -> bool:
    return (
        net.activation.rational
        and net.loss != "cross_entropy"
        and (not isinstance(net, RecurrentNet) or net.cell == "rnn" or net.gate.rational)
        and (net.transition is None or getattr(net.transition, "rational", False))
    )


def run_on(
    net: Net,
    params: Params,
    batch: Batch,
    lifted: Lift,
    divisor: Scalar = None,
    penalty: Penalty | None = None,
    losses: Mapping[str, Loss] | None = None,
    change: Callable[[NetTape], None] | None = None,
) -> Params:
    """The reference on numbers of any type: every quantity, by the names of
    ``Certified.named``; ``lifted(array, name)`` turns floats into those numbers. ``divisor``: of
    the sum over predictions, if it is another than the batch's own; ``penalty``: what is added;
    ``losses``: in place of the net's own; ``change``: what is done to the tape before backward.
    """
    y = batch.y if net.loss == "cross_entropy" else lifted(batch.y, "y")
    numbers = {name: lifted(value, name) for name, value in params.items()}
    if net.backend != "reference":  # another copy would lose layers that follow errors
        net = replace(net, backend="reference")
    outputs, tape = net.forward(numbers, lifted(batch.x, "x"), batch.mask)
    weights = None if batch.weights is None else lifted(batch.weights, "weights")
    if isinstance(divisor, (int, float, Fraction)):
        divisor = lifted(np.asarray(divisor), "divisor")[()]
    if change is not None:
        change(tape)
    lifted_batch = batch._replace(y=y, weights=weights)
    loss, doutputs = scored(net, outputs, lifted_batch, divisor, losses)
    final = {name: lifted(value, f"final {name}") for name, value in (batch.final or {}).items()}
    loss, ended = with_final(loss, tape, batch._replace(final=final))
    extra: Params | None = None
    if penalty is not None:
        value, extra = penalty(tape.p)
        loss = np.asanyarray(loss + value)
    gradients = net.backward(numbers, tape, doutputs, True, extra, **ended)
    gradients.pop("clipped", None)  # how many entries were clipped
    return {
        "loss": loss,
        "outputs": outputs,
        **states(net, tape),
        **{f"d{name}": value for name, value in gradients.items()},
    }


def states(net: Net, tape: NetTape) -> Params:
    """The states on a net's tape, by the names of ``Certified.states``."""
    if isinstance(net, RecurrentNet):
        cells = tape.cell if isinstance(tape.cell, dict) else {"": tape.cell}
        return {
            f"{name}{suffix}": getattr(cell, name)
            for suffix, cell in cells.items()
            for name in ("h", "c")
            if getattr(cell, name, None) is not None
        }
    inputs = [h for h, _ in tape.cell] + [tape.rows]
    return {f"h{layer}": inputs[layer] for layer in range(1, len(inputs))}


def certified_of(
    net: Net, params: Params, batch: Batch, named: Enclosures, kind: str, bits: int, seconds: float
) -> Certified:
    """What is certified, from every quantity by its name."""
    net, batch = _as_reference(net, batch)
    named = dict(named)
    loss, outputs = named.pop("loss"), named.pop("outputs")
    gradients = {name[1:]: named.pop(name) for name in list(named) if name.startswith("d")}
    return Certified(net, params, batch, loss, outputs, named, gradients, kind, bits, seconds)
