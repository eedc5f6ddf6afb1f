"""Optimizers, written out: value, gradient, state -> new value, new state.

``init(params)`` gives the state, a flat dict of arrays that a checkpoint can store: "steps"
(how many were taken) and, for each parameter, its accumulators as "name/accumulator".
``step(params, grads, state)`` gives new params and state and changes neither argument; a
parameter named in ``skip`` is passed through (one that lives on a manifold moves elsewhere).

A step preserves the dtype: hyperparameters are Python numbers, and on object arrays they
enter as exact fractions, so a step on rationals is exact (RMSprop, Adam, AdamW and Adadelta take
roots and need numbers that have one).
Checked by: tests/training/test_optimizers.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import (
    check_fields,
    choice,
    instance,
    kind,
    number,
    one_of,
    optional,
    real,
    takes,
)
from refnet.common.names import Table, lacking
from refnet.maths.kinds import inexact, join
from refnet.maths.numeric import Number, constant, product, sqrt, times
from refnet.nets.backends import compiled
from refnet.runs.read import Record

RULES = {
    "rate": real("[0, inf)"),
    "momentum": real("[0, 1]"),
    "decay": real("[0, 1]"),
    "beta1": real("[0, 1)"),
    "beta2": real("[0, 1)"),
    "eps": real("[0, inf)"),
    "weight_decay": real("[0, inf)"),
    "first": real("[0, inf)"),
    "place": one_of(("inside", "outside")),
}
"""Name of an optimiser's field -> what it has to be."""


Moments = tuple[Array, ...]
"""The accumulators of a parameter."""
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
"""The dtypes of arrays that need no lifting, and that compiled loops take."""


def _all_floats(arrays: list[Array]) -> bool:
    """Whether all arrays are of float32, or all of float64."""
    first = arrays[0].dtype if arrays else FLOATS[0]
    return first in FLOATS and all(
        [array.dtype is first or array.dtype == first for array in arrays]
    )


@dataclass(frozen=True)
class Optimizer:
    """What all have: the learning ``rate``, ``rates`` that multiply it for single parameters,
    and names to ``skip``.

    ``step`` raises ValueError if a parameter has no gradient, or one of another shape.
    """

    rate: Number
    rates: Mapping[str, Number] = field(default_factory=dict)
    skip: tuple[str, ...] = ()

    accumulators: ClassVar[tuple[str, ...]] = ()
    large: ClassVar[int] = 2**16
    """Parameters from which on compiled loops are faster than NumPy's."""

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_fields(
            where,
            self,
            {name: RULES[entry.name] for entry in fields(self) if (name := entry.name) in RULES},
        )
        kind(f"{where}: rates", self.rates, Mapping, "a dict of factors by name")
        for name, factor in self.rates.items():
            number(f"{where}: rates[{name!r}]", factor)
        kind(f"{where}: skip", self.skip, (tuple, list), "a tuple of names")

    def start(self, value: Array, accumulator: str) -> Array:
        """What an accumulator of that parameter, of its shape, is before the first step."""
        return np.zeros_like(value)

    def init(self, params: Params) -> Params:
        """The state before the first step."""
        for name in (*self.rates, *self.skip):
            if name not in params:
                raise ValueError(
                    f"{type(self).__name__}: there is no parameter {name!r}; the "
                    f"parameters are {', '.join(params)}"
                )
        return {"steps": np.zeros((), np.int64)} | {
            f"{name}/{accumulator}": self.start(inexact(value), accumulator)
            for name, value in params.items()
            if name not in self.skip
            for accumulator in self.accumulators
        }

    def step(self, params: Params, grads: Params, state: Params) -> tuple[Params, Params]:
        """One step: new parameters and new state. Entries of grads that are no parameter
        (such as the gradient in x) are ignored."""
        names = [name for name in params if name not in self.skip]
        places = [f"{name}/{each}" for name in names for each in self.accumulators]
        if lost := {"steps", *places} - state.keys():
            raise ValueError(
                f"{type(self).__name__}.step: the state has no {min(lost)}; give the "
                "state that init makes for these parameters"
            )
        steps = int(state["steps"]) + 1
        values = [params[name] for name in names]
        gs: list[Any] = [grads.get(name) for name in names]
        for name, value, g in zip(names, values, gs):
            if g is None or g.shape != value.shape:
                have = "none" if g is None else g.shape
                raise ValueError(
                    f"{type(self).__name__}.step: {name} is {value.shape} and its "
                    f"gradient {have}; give one of the same shape or skip {name}"
                )
        if not _all_floats([*values, *gs]):
            values = [inexact(value) for value in values]
            gs = [
                join(f"the gradient of {name}", g, name, value)
                for name, g, value in zip(names, gs, values)
            ]
        old = [state[place] for place in places]
        for n, (place, stored) in enumerate(zip(places, old)):
            value = values[n // len(self.accumulators)]
            if stored.shape != value.shape or stored.dtype != value.dtype:
                raise ValueError(
                    f"{type(self).__name__}.step: the state's {place} is "
                    f"{stored.dtype} {stored.shape} and its parameter {value.dtype} "
                    f"{value.shape}; give the state that init makes for these "
                    "parameters"
                )
        rates = [
            product(self.rate, self.rates[name]) if name in self.rates else self.rate
            for name in names
        ]
        values, new = self.updated(values, rates, gs, old, steps)
        return {**params, **dict(zip(names, values))}, {
            "steps": np.asarray(steps, np.int64),
            **dict(zip(places, new)),
        }

    def updated(
        self,
        values: list[Array],
        rates: list[Number],
        gs: list[Array],
        old: list[Array],
        steps: int,
    ) -> tuple[list[Array], list[Array]]:
        """The new parameters, and the new accumulators in the order of the old ones; to the same
        bits at any size."""
        if rule := self._compiled(values):
            constants = {rate: list(map(float, self.constants(rate, steps))) for rate in set(rates)}
            columns = [constants[rate] for rate in rates]
            return compiled("elementwise").stepped(rule, values, gs, old, columns)  # type: ignore[no-any-return]
        values, directions, new = self.decayed(values, rates), gs, []
        if type(self).move is not Optimizer.move:
            count = len(self.accumulators)
            moments = iter(old)
            moves = [self.move(g, tuple(islice(moments, count)), steps) for g in gs]
            directions = [direction for direction, _ in moves]
            new = [np.asarray(each) for _, state in moves for each in state]
        changes = [np.asarray(times(*pair)) for pair in zip(rates, directions)]
        return [
            np.subtract(value, change, out=change) for value, change in zip(values, changes)
        ], new

    def decayed(self, values: list[Array], rates: list[Number]) -> list[Array]:
        """The parameters that a step of NumPy's starts from."""
        return values

    def _compiled(self, values: list[Array]) -> str | None:
        """The name of the kernel that steps these arrays, whose gradients and accumulators have
        their dtypes, faster than NumPy, if there is one. A subclass with a ``move`` of its own has
        none."""
        rule = COMPILED.get(type(self).move)
        large = sum([value.size for value in values]) >= self.large
        return rule if large and _all_floats(values) else None

    def constants(self, rate: Number, steps: int) -> list[Number]:
        """What the kernel of the rule takes for a parameter of that rate."""
        return [rate]

    def move(self, g: Array, moments: Moments, steps: int) -> tuple[Array, Moments]:
        """The direction, ``W <- W - rate direction``, and the new accumulators; a rule without
        accumulators goes along the gradient."""
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimizer):
    """``W <- W - rate g``."""


@dataclass(frozen=True)
class Momentum(Optimizer):
    """``v <- momentum v + g``; ``W <- W - rate v`` (Polyak 1964).

    While the rate is constant it is the same as Lasagne's and Sutskever's
    ``v <- momentum v - rate g; W <- W + v``.
    """

    momentum: Number = 0.9
    accumulators = ("velocity",)

    def move(self, g: Array, moments: Moments, steps: int) -> tuple[Array, Moments]:
        v = times(self.momentum, moments[0]) + g
        return v, (v,)

    def constants(self, rate: Number, steps: int) -> list[Number]:
        return [rate, self.momentum, False]


@dataclass(frozen=True)
class Nesterov(Momentum):
    """``v <- momentum v + g``; ``W <- W - rate (g + momentum v)`` (Nesterov 1983), in the
    form of Bengio et al. (2013), whose W is the point where the gradient is taken."""

    def move(self, g: Array, moments: Moments, steps: int) -> tuple[Array, Moments]:
        v = times(self.momentum, moments[0]) + g
        return g + times(self.momentum, v), (v,)

    def constants(self, rate: Number, steps: int) -> list[Number]:
        return [rate, self.momentum, True]


def _exactly(c: Number, g: Array) -> Number:
    """The constant of a step with the gradient g, so that a difference or power of it is exact
    on exact numbers."""
    return Fraction(c) if g.dtype == object else c


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """``r <- decay r + (1 - decay) g^2``; ``W <- W - rate g / sqrt(r + eps)`` with eps
    "inside" the root, ``W <- W - rate g / (sqrt(r) + eps)`` with eps "outside".

    ``first``: r before the first step. RMSPROP_FORMS names what libraries do.
    Source: Tieleman & Hinton (2012).
    """

    decay: Number = 0.9
    eps: Number = 1e-6
    place: str = "inside"
    first: Number = 0
    accumulators = ("square",)
    large = 2**13

    def start(self, value: Array, accumulator: str) -> Array:
        return (
            times(self.first, value * 0 + 1)
            if value.dtype == object
            else np.full_like(value, float(self.first))
        )

    def move(self, g: Array, moments: Moments, steps: int) -> tuple[Array, Moments]:
        decay = _exactly(self.decay, g)
        r = times(decay, moments[0]) + times(1 - decay, g * g)
        eps = constant(self.eps, g)
        return g / (sqrt(r + eps) if self.place == "inside" else sqrt(r) + eps), (r,)

    def constants(self, rate: Number, steps: int) -> list[Number]:
        return [rate, self.decay, 1 - self.decay, self.eps, self.place == "inside"]


RMSPROP_FORMS: dict[str, Record] = {
    "lasagne": {"decay": 0.9, "eps": 1e-6, "place": "inside", "first": 0},
    "torch": {"decay": 0.99, "eps": 1e-8, "place": "outside", "first": 0},
    "keras": {"decay": 0.9, "eps": 1e-7, "place": "inside", "first": 0},
    "tensorflow1": {"decay": 0.9, "eps": 1e-10, "place": "inside", "first": 1},
}
"""RMSprop as libraries write it, with their default constants (Keras: version 3)."""


@dataclass(frozen=True)
class Adam(Optimizer):
    """``m <- beta1 m + (1 - beta1) g``; ``r <- beta2 r + (1 - beta2) g^2``;
    ``W <- W - rate (m / (1 - beta1^n)) / (sqrt(r / (1 - beta2^n)) + eps)`` at step n.

    Source: Kingma & Ba (2015), algorithm 1.
    """

    beta1: Number = 0.9
    beta2: Number = 0.999
    eps: Number = 1e-8
    accumulators = ("mean", "square")
    large = 2**12

    def move(self, g: Array, moments: Moments, steps: int) -> tuple[Array, Moments]:
        beta1, beta2 = _exactly(self.beta1, g), _exactly(self.beta2, g)
        m = times(beta1, moments[0]) + times(1 - beta1, g)
        r = times(beta2, moments[1]) + times(1 - beta2, g * g)
        root = sqrt(times(1 / (1 - beta2**steps), r))
        return times(1 / (1 - beta1**steps), m) / (root + constant(self.eps, g)), (m, r)

    def constants(self, rate: Number, steps: int) -> list[Number]:
        of_betas = ((b, 1 - b, 1 / (1 - b**steps)) for b in (self.beta1, self.beta2))
        return [rate, *chain(*of_betas), self.eps, False, 0]


@dataclass(frozen=True)
class AdamW(Adam):
    """``W <- (1 - rate weight_decay) W``, and then Adam's step: every parameter decays, as
    PyTorch's do, and by no moment of the gradient.

    Source: Loshchilov & Hutter (2019), algorithm 2.
    """

    weight_decay: Number = 0.01

    def decayed(self, values: list[Array], rates: list[Number]) -> list[Array]:
        decays = {rate: product(rate, self.weight_decay) for rate in set(rates)}
        return [
            np.asarray(value - times(decays[rate], value)) for value, rate in zip(values, rates)
        ]

    def constants(self, rate: Number, steps: int) -> list[Number]:
        return [*super().constants(rate, steps)[:-2], True, product(rate, self.weight_decay)]


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """``r <- decay r + (1 - decay) g^2``; ``d = g sqrt(u + eps) / sqrt(r + eps)``;
    ``u <- decay u + (1 - decay) d^2``; ``W <- W - rate d``, with a rate of 1 in the paper.

    Source: Zeiler (2012), algorithm 1.
    """

    decay: Number = 0.9
    eps: Number = 1e-6
    accumulators = ("square", "update")
    large = 2**12

    def move(self, g: Array, moments: Moments, steps: int) -> tuple[Array, Moments]:
        decay, eps = _exactly(self.decay, g), constant(self.eps, g)
        r = times(decay, moments[0]) + times(1 - decay, g * g)
        d = g * sqrt(moments[1] + eps) / sqrt(r + eps)
        return d, (r, times(decay, moments[1]) + times(1 - decay, d * d))

    def constants(self, rate: Number, steps: int) -> list[Number]:
        return [rate, self.decay, 1 - self.decay, self.eps]


COMPILED = {
    Optimizer.move: "sgd",
    Momentum.move: "momentum",
    Nesterov.move: "momentum",
    RMSprop.move: "rmsprop",
    Adam.move: "adam",
    Adadelta.move: "adadelta",
}
"""A rule's ``move`` -> the name of its kernel in ``refnet.compiled.elementwise.KERNELS``."""

OPTIMIZERS: Table[Callable[..., Optimizer]] = Table(
    "optimizer",
    {
        "sgd": SGD,
        "momentum": Momentum,
        "nesterov": Nesterov,
        "rmsprop": RMSprop,
        "adam": Adam,
        "adamw": AdamW,
        "adadelta": Adadelta,
    },
    partial(lacking, needs=("init", "step", "rate", "skip", "rates")),
)


@takes(rate=real("[0, inf)"), form=optional(instance(str, "a name such as 'torch'")))
def optimizer(name: str, rate: Number, form: str | None = None, **options: Any) -> Optimizer:
    """The optimiser of that name, one of OPTIMIZERS. ``form``: for rmsprop, one of RMSPROP_FORMS,
    whose constants ``options`` may still replace.

    Raises ValueError for an unknown name, form or option.

    >>> rule = optimizer("momentum", rate=0.5, momentum=0.9)
    >>> params, gradients = {"W": np.ones(2)}, {"W": np.array([1.0, -1.0])}
    >>> params, state = rule.step(params, gradients, rule.init(params))
    >>> params["W"].tolist()
    [0.5, 1.5]

    Checked by: tests/training/test_optimizers.py::test_optimizer_errors, ::test_against_torch.
    """
    choice("optimizer", name, OPTIMIZERS)
    if form is not None:
        if name != "rmsprop" or form not in RMSPROP_FORMS:
            raise ValueError(
                f"optimizer {name!r} has no form {form!r}; rmsprop has {', '.join(RMSPROP_FORMS)}"
            )
        options = RMSPROP_FORMS[form] | options
    known = [entry.name for entry in fields(OPTIMIZERS[name])]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise ValueError(f"optimizer {name!r} takes {', '.join(known)}, not {option!r}")
    return OPTIMIZERS[name](rate=rate, **options)
