"""What stands between the outputs of a net and their gradient: the loss and its targets.

A candidate says the loss of every prediction and its gradient in the outputs; the net's own
backward pass makes the gradients of it. The gradients of the read-out alone say which candidates
fit, up to a factor. Checked by: tests/check/test_outside.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.programs.losses import VIEWS, added, gradient, losses, softmax, usual
from refnet.check.programs.moves import Move, moves
from refnet.maths.losses import counted_predictions
from refnet.nets.gradients import Net, with_final

__all__ = ["Score", "Scores"]

WORK = 2e5
"""The most numbers of the outputs, times their classes, of which other formulas are tried."""
Scored = Iterator[tuple[str, Array, Array]]


class Score(NamedTuple):
    """A mistake's name, the losses of the predictions (N,) or NaN, and their gradient (N, C);
    ``formula``: whether it is the same at every size where it is the same as another."""

    name: str
    each: Array
    dv: Array
    formula: bool = False


class Scores:
    """The outputs of a net, their targets and weights, and what may be made of them."""

    def __init__(self, net: Net, params: Params, batch: Batch) -> None:
        self.net = net = replace(net, backend="reference")
        self.params = params
        outputs, self.tape = net.forward(params, batch.x, batch.mask)
        lead, C = outputs.shape[:-1], outputs.shape[-1]
        self.shape, self.grid = outputs.shape, (1, *lead)[-2:]
        counted, self.divisor = counted_predictions(batch.mask, lead, net.reduction, batch.weights)
        weights = np.broadcast_to(1 if batch.weights is None else batch.weights, lead)
        self.w = np.where(True if counted is None else counted, weights, 0).ravel().astype(float)
        self.v = outputs.reshape(-1, C)
        self.v = np.where(np.isfinite(self.v).all(axis=1, keepdims=True), self.v, 0)
        y = np.asarray(batch.y).reshape(len(self.v), *np.shape(batch.y)[len(lead) :])
        self.labels = y if net.loss == "cross_entropy" else None
        self.t = self.soft(y) if self.labels is not None else np.where(np.isfinite(y), y, 0)
        self.formula = usual(net.loss)
        self.each, self.slope = self.of(self.v, self.t)
        self.added, self.ended = with_final(np.zeros(()), self.tape, batch)
        steps = len(batch.x) if batch.x.ndim == 3 else 1
        self.sequence = (
            np.full(self.grid[1], steps) if batch.mask is None else last_steps(batch.mask)
        )
        self.lengths = np.minimum(self.sequence, self.grid[0])
        share = self.w / self.divisor
        self.right = Score("", self.each * share, self.slope * share[:, None])
        self.moves = list(moves(self.lengths, self.grid[0]))

    def soft(self, labels: Array) -> Array:
        """Labels as the net smooths them, (N, C)."""
        s, C = getattr(self.net, "smoothing", 0), self.v.shape[1]
        return np.asarray((1 - s) * np.eye(C)[np.asarray(labels) % C] + s / C)

    def of(self, v: Array, t: Array) -> tuple[Array, Array]:
        """The losses and gradients of the net's own formula."""
        if self.labels is None:
            return self.formula(v, t), 2 * (v - t) / v.shape[1]
        return self.formula(v, t), softmax(v) * t.sum(axis=1, keepdims=True) - t

    def backward(self, dv: Array) -> Params:
        """The gradients that follow, by the names of results."""
        dv = dv.reshape(self.shape)
        pulled = self.net.backward(self.params, self.tape, dv, True, None, **self.ended)
        return {f"d{name}": value for name, value in pulled.items() if name != "clipped"}

    def preview(self, dv: Array) -> Params:
        """The gradients of the read-out."""
        last = getattr(self.net, "depth", -1) + 1
        names = (f"W{last}", f"b{last}") if last else ("Why", "by")
        if names[0] not in self.params or len(self.tape.rows) != len(dv):
            return {}
        return {f"d{names[0]}": dv.T @ self.tape.rows, f"d{names[1]}": dv.sum(axis=0)}

    def rearranged(self, move: Move, values: Array) -> Array:
        """Values of the predictions, moved."""
        return move.there(values.reshape(*self.grid, *values.shape[1:])).reshape(values.shape)

    def candidates(self) -> Iterator[Score]:
        """Other losses, targets, outputs and gradients."""
        share = self.w / self.divisor
        for kind in (self._targets, self._slopes, self._formulas, self._outputs):
            formula = kind in (self._slopes, self._formulas)
            for name, each, slope in kind():
                yield Score(name, each * share, slope * share[:, None], formula)
        for move in self.moves:
            if not move.scales:
                name = f"the gradient of the outputs {move.name}"
                yield Score(name, self.right.each, self.rearranged(move, self.right.dv))

    def additions(self) -> Iterator[Score]:
        """What may be added to the loss, times a constant."""
        share, v, t = self.w / self.divisor, self.v, self.t
        for name, formula in added() if self._small else ():
            slope = gradient(formula, v, t)
            yield Score(name, formula(v, t) * share, slope * share[:, None], True)
        step = np.diff(v.reshape(*self.grid, -1), axis=0)
        pulled = np.pad(step, ((1, 0), (0, 0), (0, 0))) - np.pad(step, ((0, 1), (0, 0), (0, 0)))
        each = np.pad((step**2).sum(axis=-1), ((1, 0), (0, 0))).ravel()
        slope = 2 * pulled.reshape(v.shape)
        yield Score("the squared change of the outputs from step to step", each, slope, True)

    @property
    def _small(self) -> bool:
        return self.v.size * self.v.shape[1] <= WORK

    def _targets(self) -> Scored:
        if self.labels is None:
            options = [(move.name, self.rearranged(move, self.t)) for move in self.moves]
            for name, target in (*options, *self._numbers()):
                yield f"the target {name}", *self.of(self.v, target)
            return
        rearranged = [(m.name, self.rearranged(m, self.labels)) for m in self.moves if m.picks]
        for name, labels in (*rearranged, *self._classes()):
            yield f"the label {name}", *self.of(self.v, self.soft(labels))
        p, t = softmax(self.v), self.t
        for name, target in (
            ("counts twice", 2 * t),
            ("is -1 for all other classes", 2 * t - 1),
            ("is 0 for its class and 1 for the others", 1 - t),
            ("is left out", 0 * t),
            ("is divided by the number of classes", t / t.shape[1]),
        ):
            yield f"the label {name}", *self.of(self.v, target)
            yield f"the label {name}", np.nan * self.each, p - target

    def _numbers(self) -> Iterator[tuple[str, Array]]:
        """Other targets that are numbers."""
        t = self.t
        yield "comes from the channel before", np.roll(t, 1, axis=1)
        yield "comes from the next channel", np.roll(t, -1, axis=1)
        yield "has its channels reversed", t[:, ::-1]
        yield "is that of the first channel, in every channel", t[:, :1] + 0 * t
        yield "is the mean over the channels", t.mean(axis=1, keepdims=True) + 0 * t
        yield "is rounded", np.round(t)
        grid = t.reshape(*self.grid, -1)
        for over, axes in (("all targets", None), ("the batch", 1), ("the steps", 0)):
            mean, deviation, low, high = (
                f(grid, axis=axes, keepdims=True) for f in (np.mean, np.std, np.min, np.max)
            )
            for name, target in (
                ("less its mean", grid - mean),
                ("standardized", (grid - mean) / np.maximum(deviation, 1e-30)),
                ("divided by its deviation", grid / np.maximum(deviation, 1e-30)),
                ("scaled to 0 .. 1", (grid - low) / np.maximum(high - low, 1e-30)),
            ):
                yield f"is {name} over {over}", target.reshape(t.shape)

    def _classes(self) -> Iterator[tuple[str, Array]]:
        """Other labels."""
        y, C = self.labels, self.v.shape[1]
        assert y is not None
        yield "is one too large (around)", y + 1
        yield "is one too small (around)", y - 1
        yield "is one too large (the last its own)", np.minimum(y + 1, C - 1)
        yield "is one too small (the first its own)", np.maximum(y - 1, 0)
        yield "is counted from the last class", C - 1 - y
        yield "is the class of the largest output", self.v.argmax(axis=1)
        yield "is the class of the smallest output", self.v.argmin(axis=1)
        yield from ((f"is class {c}, always", 0 * y + c) for c in range(min(C, 8)))

    def _formulas(self) -> Scored:
        v, t, H = self.v, self.t, self.tape.rows.shape[-1]
        for name, loss, view in losses(self.labels is None) if self._small else ():
            text, each = f"the loss is {name}", loss(view(v), t)
            yield text, each, gradient(lambda v, t: loss(view(v), t), v, t)
            if view is not VIEWS[""]:
                text = f"{text}, and the gradient leaves out the slope of that"
                yield text, each, gradient(loss, view(v), t)
        C = v.shape[1]
        for size, k in {"2": 2, "C": C, "sqrt(C)": C**0.5, "sqrt(H)": H**0.5}.items():
            for how, factor in ((f"times {size}", k), (f"divided by {size}", 1 / k)):
                text, (each, slope) = f"the loss takes the outputs {how}", self.of(factor * v, t)
                yield text, each, factor * slope
                yield f"{text}, and the gradient leaves that out", each, slope
        for what, view in VIEWS.items() if self.labels is None else ():
            if what:
                yield f"the target is {what} of it", *self.of(v, view(t))
                chain = gradient(lambda v, s: self.formula(view(v), s), v, view(t))
                text = f"outputs and targets are {what} of them"
                yield text, self.formula(view(v), view(t)), chain

    def _outputs(self) -> Scored:
        """Outputs of other predictions, as the loss or its gradient sees them."""
        number = np.arange(1.0, 1 + len(self.v)).reshape(self.grid)
        for move in (move for move in self.moves if not move.uniform):
            each, slope = self.of(self.rearranged(move, self.v), self.t)
            text = f"the output in the loss {move.name}"
            yield text, each, slope
            if (move.back(move.there(number)) == number).all():
                continue  # as the targets in the other order
            back = move.back(slope.reshape(*self.grid, -1)).reshape(slope.shape)
            yield (
                f"the output in the loss {move.name}, and its gradient goes back there",
                each,
                back,
            )

    def _slopes(self) -> Scored:
        """Other gradients of the right loss."""
        v, e, right = self.v, self.each, self.slope
        size = np.linalg.norm(right, axis=1, keepdims=True)
        options = self._of_the_softmax() if self.labels is not None else self._of_the_error()
        s = 1 / (1 + np.exp(-v))
        for name, dv in (
            *options,
            *(
                (f"is multiplied by {text}", right * slope)
                for text, slope in (
                    ("1 - v^2", 1 - v * v),
                    ("1 - tanh(v)^2", 1 - np.tanh(v) ** 2),
                    ("v (1 - v)", v * (1 - v)),
                    ("the sigmoid's slope at v", s * (1 - s)),
                    ("relu's slope at v", v > 0),
                    ("the output v", v),
                    ("the loss itself", e[:, None]),
                    ("itself", right),
                    ("its size", abs(right)),
                    ("1 / its norm for each prediction", 1 / np.maximum(size, 1e-300)),
                )
            ),
            ("is its sign", np.sign(right)),
            ("is its absolute value", abs(right)),
            ("is clipped at 1", np.clip(right, -1, 1)),
            ("is taken less its mean over the outputs", right - right.mean(axis=1, keepdims=True)),
            ("has its outputs reversed", right[:, ::-1]),
            ("is that of the output before", np.roll(right, 1, axis=1)),
            ("is that of the next output", np.roll(right, -1, axis=1)),
        ):
            yield f"the gradient of the loss {name}", e, dv

    def _of_the_softmax(self) -> Iterator[tuple[str, Array]]:
        v, t, right, p = self.v, self.t, self.slope, softmax(self.v)
        largest = v.max(axis=1, keepdims=True)
        for rest, top in (("", v.max()), (", below each row's largest,", largest)):
            exp = np.exp(v - top).reshape(*self.grid, -1)
            for what, axes in (("the examples", 1), ("the steps", 0), ("all predictions", None)):
                q = (exp / exp.sum(axis=axes, keepdims=True)).reshape(v.shape)
                yield f"takes the softmax over {what}{rest} for that over the classes", q - t
        for what, view in VIEWS.items():
            yield f"takes {what or 'the logits'} for the softmax", view(v) - t
            yield f"takes {what or 'the logits'} of the softmax for the softmax", view(p) - t
        likely = np.eye(v.shape[1])[v.argmax(axis=1)]
        for what, q in (
            ("1", 1 + 0 * p),
            ("1 / C", 0 * p + 1 / p.shape[1]),
            ("1 - the softmax", 1 - p),
            ("the class of the largest logit", likely),
        ):
            yield f"takes {what} for the softmax", q - t
        yield "takes exp of the logits less their largest for the softmax", np.exp(v - largest) - t
        yield "takes off the label before the division", p - t * p.max(axis=1, keepdims=True)
        at = (p * t).sum(axis=1, keepdims=True)
        hit = (likely * t).sum(axis=1, keepdims=True) > 0
        yield "is that of the label's logit alone", right * t
        yield "is that of the other logits alone", right * (1 - t)
        once = p * (right - (p * right).sum(axis=1, keepdims=True))
        yield "goes through the softmax's slope once more", once
        yield "is -1 / p for the label", -t / at
        for what, factor in (
            ("p (1 - p)", p * (1 - p)),
            ("p", p),
            ("p of the label", at),
            ("1 / p of the label", 1 / at),
            ("1 - p of the label", 1 - at),
            ("(1 - p)^2 of the label", (1 - at) ** 2),
            ("0 where the largest logit is the label's", ~hit),
        ):
            yield f"is multiplied by {what}", right * factor

    def _of_the_error(self) -> Iterator[tuple[str, Array]]:
        v, t, C = self.v, self.t, self.v.shape[1]
        wrong = v - t
        for what, e in (
            ("its sign", np.sign(wrong)),
            ("its cube", wrong**3),
            ("its square", wrong**2),
            ("it times its size", wrong * abs(wrong)),
            ("its size", abs(wrong)),
            ("the output", v),
            ("minus the target", -t),
            ("output plus target", v + t),
            ("it clipped at 1", np.clip(wrong, -1, 1)),
            ("its mean over the outputs", 0 * wrong + wrong.mean(axis=1, keepdims=True)),
            ("it over the target", wrong / t),
            ("it times the target", wrong * t),
        ):
            yield f"takes {what} for the error", 2 * e / C
