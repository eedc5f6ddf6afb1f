"""What stands between the outputs of a net and their gradient: the loss and its targets.

A candidate says the loss of every prediction and its gradient in the outputs; the net's own
backward pass makes the gradients of it. The gradients of the read-out alone say which candidates
fit, up to a factor (``loss_mistakes``). The tables are formulas (``notation``).

Checked by: tests/check/test_outside.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.programs.losses import VIEWS, added, gradient, losses, usual
from refnet.check.programs.moves import Move, moves, scalings
from refnet.check.programs.notation import formula, softmax
from refnet.maths.losses import counted_predictions
from refnet.nets.gradients import Net, with_final

__all__ = ["Score", "Scores"]

WORK = 2e5
"""The most numbers of the outputs, times their classes, of which other formulas are tried."""
CLASS = 32
"""The most classes of which each is looked for, if the softmax may lack one."""
Scored = Iterator[tuple[str, Array, Array]]
"""A name, the losses of the predictions and their gradients, before weights and divisor."""
FACTORS = {
    "1 - v^2": "",
    "1 - tanh(v)^2": "",
    "v (1 - v)": "",
    "the sigmoid's slope at v": "sigmoid(v) (1 - sigmoid(v))",
    "relu's slope at v": "v > 0",
    "the output v": "v",
    "the loss itself": "e",
    "itself": "d",
    "its size": "abs(d)",
    "1 / its norm for each prediction": "1 / maximum(norm(d), 1e-300)",
}
"""What the gradient d of a prediction's loss e is multiplied by; p is the softmax of the outputs v,
t the target."""
FACTORS_OF_LABELS = {
    "p (1 - p)": "",
    "p": "",
    "p of the label": "sum(p t)",
    "1 / p of the label": "1 / sum(p t)",
    "1 - p of the label": "1 - sum(p t)",
    "(1 - p)^2 of the label": "(1 - sum(p t))^2",
    "0 where the largest logit is the label's": "sum(largest t) <= 0",
}
SLOPES = {
    "is its sign": "sign(d)",
    "is its absolute value": "abs(d)",
    "is clipped at 1": "clip(d, -1, 1)",
    "is taken less its mean over the outputs": "d - mean(d)",
    "has its outputs reversed": "d[:, ::-1]",
    "is that of the output before": "roll(d, 1, axis=1)",
    "is that of the next output": "roll(d, -1, axis=1)",
}
SLOPES_OF_LABELS = {
    "takes 1 for the softmax": "1 + 0 p - t",
    "takes 1 / C for the softmax": "0 p + 1 / C - t",
    "takes 1 - the softmax for the softmax": "1 - p - t",
    "takes the class of the largest logit for the softmax": "largest - t",
    "takes exp of the logits less their largest for the softmax": "exp(v - max(v)) - t",
    "takes off the label before the division": "p - t max(p)",
    "is that of the label's logit alone": "d t",
    "is that of the other logits alone": "d (1 - t)",
    "goes through the softmax's slope once more": "p (d - sum(p d))",
    "is -1 / p for the label": "-t / sum(p t)",
}
ERRORS = {
    "its sign": "sign(v - t)",
    "its cube": "(v - t)^3",
    "its square": "(v - t)^2",
    "it times its size": "(v - t) abs(v - t)",
    "its size": "abs(v - t)",
    "the output": "v",
    "minus the target": "-t",
    "output plus target": "v + t",
    "it clipped at 1": "clip(v - t, -1, 1)",
    "its mean over the outputs": "0 v + mean(v - t)",
    "it over the target": "(v - t) / t",
    "it times the target": "(v - t) t",
}
LABELS = {
    "counts twice": "2 t",
    "is -1 for all other classes": "2 t - 1",
    "is 0 for its class and 1 for the others": "1 - t",
    "is left out": "0 t",
    "is divided by the number of classes": "t / C",
}
CLASSES = {
    "is one too large (around)": "y + 1",
    "is one too small (around)": "y - 1",
    "is one too large (the last its own)": "minimum(y + 1, C - 1)",
    "is one too small (the first its own)": "maximum(y - 1, 0)",
    "is counted from the last class": "C - 1 - y",
    "is the class of the largest output": "v.argmax(axis=1)",
    "is the class of the smallest output": "v.argmin(axis=1)",
    **{f"is class {c}, always": f"0 y + {c}" for c in range(8)},
}
"""Other labels y; those that are no class are left out."""
NUMBERS = {
    "comes from the channel before": "roll(t, 1, axis=1)",
    "comes from the next channel": "roll(t, -1, axis=1)",
    "has its channels reversed": "t[:, ::-1]",
    "is that of the first channel, in every channel": "t[:, :1] + 0 t",
    "is the mean over the channels": "mean(t) + 0 t",
    "is rounded": "round(t)",
}


class Score(NamedTuple):
    """A candidate: its name, the losses of the predictions (N,), NaN if unknown, and their gradient
    (N, C). ``formula``: two candidates that give the same here do so at all sizes."""

    name: str
    each: Array
    dv: Array
    formula: bool = False


class Scores:
    """The outputs of a net with their targets and weights, and the candidates that are made of
    them."""

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
        self.p, self.largest = softmax(self.v), np.eye(C)[self.v.argmax(axis=1)]
        self.formula = usual(net.loss)
        self.each, self.slope = self.of(self.v, self.t)
        self.added, self.ended = with_final(np.zeros(()), self.tape, batch)
        steps = len(batch.x) if batch.x.ndim == 3 else 1
        self.sequence = (
            np.full(self.grid[1], steps) if batch.mask is None else last_steps(batch.mask)
        )
        self.lengths = np.minimum(self.sequence, self.grid[0])
        self.right = self.score("", self.each, self.slope)
        self.moves = list(moves(self.lengths, self.grid[0]))

    def soft(self, labels: Array) -> Array:
        """Labels as the net smooths them, (N, C)."""
        s, C = getattr(self.net, "smoothing", 0), self.v.shape[1]
        return np.asarray((1 - s) * np.eye(C)[np.asarray(labels) % C] + s / C)

    def of(self, v: Array, t: Array) -> tuple[Array, Array]:
        """The losses of outputs and targets by the net's own formula, and their gradients."""
        if self.labels is None:
            return self.formula(v, t), 2 * (v - t) / v.shape[1]
        return self.formula(v, t), softmax(v) * t.sum(axis=1, keepdims=True) - t

    def backward(self, dv: Array) -> Params:
        """All gradients that follow from a gradient in the outputs, by the names of results."""
        dv = dv.reshape(self.shape)
        pulled = self.net.backward(self.params, self.tape, dv, True, None, **self.ended)
        return {f"d{name}": value for name, value in pulled.items() if name != "clipped"}

    def preview(self, dv: Array) -> Params:
        """The gradients of the read-out alone, which cost next to nothing."""
        last = getattr(self.net, "depth", -1) + 1
        names = (f"W{last}", f"b{last}") if last else ("Why", "by")
        if names[0] not in self.params or len(self.tape.rows) != len(dv):
            return {}
        return {f"d{names[0]}": dv.T @ self.tape.rows, f"d{names[1]}": dv.sum(axis=0)}

    def rearranged(self, move: Move, values: Array) -> Array:
        """Values of the predictions after a move."""
        return move.there(values.reshape(*self.grid, *values.shape[1:])).reshape(values.shape)

    def value(self, text: str, **more: Any) -> Array:
        """What a formula gives of the outputs v, their softmax p, the targets t and labels y, the
        losses e and their gradients d, and ``more``."""
        known = {
            "v": self.v, "p": self.p, "t": self.t, "y": self.labels, "e": self.each[:, None],
            "d": self.slope, "C": self.v.shape[1], "largest": self.largest, **more,
        }  # fmt: skip
        return formula(text, ", ".join(known))(*known.values())

    def score(self, name: str, each: Array, slope: Array, formula: bool = False) -> Score:
        """The candidate of losses and gradients that still lack weights and divisor."""
        share = self.w / self.divisor
        return Score(name, each * share, slope * share[:, None], formula)

    def weighted(self, name: str, w: Array) -> Score:
        """The candidate of the right losses and gradients with other weights."""
        share = w / self.divisor
        return Score(name, self.each * share, self.slope * share[:, None])

    def candidates(self) -> Iterator[Score]:
        """Candidates with other losses, targets, outputs or gradients."""
        for kind in (self._targets, self._slopes, self._formulas, self._outputs):
            formula = kind in (self._slopes, self._formulas)
            yield from (self.score(*parts, formula) for parts in kind())
        yield from self._shifted()
        for move in self.moves:
            if not move.scales:
                name = f"the gradient of the outputs {move.name}"
                yield Score(name, self.right.each, self.rearranged(move, self.right.dv))

    def _shifted(self) -> Iterator[Score]:
        """Targets of another step, where the step that has none does not count."""
        T, target = self.grid[0], self.t.reshape(*self.grid, -1)
        ways = (1, "before", 0, "first"), (-1, "after", T - 1, "last")
        for by, side, end, edge in ways if T > 1 else ():
            each, slope = self.of(self.v, np.roll(target, by, axis=0).reshape(self.t.shape))
            w = self.w * (np.indices(self.grid)[0].ravel() != end)
            name = f"the target is that of the step {side}, and the {edge} one is left out"
            for more, k in (("", 1), (", also of the count", self.w.sum() / max(w.sum(), 1e-300))):
                share = (k * w / self.divisor)[:, None]
                yield Score(name + more, each * share[:, 0], slope * share)

    def additions(self) -> Iterator[tuple[str, list[Score]]]:
        """What may be added to the loss, each part times a constant: its name, in which the
        constants stand as {0}, {1}."""
        v, t = self.v, self.t
        for name, loss in added() if self._small else ():
            score = self.score("", loss(v, t), gradient(loss, v, t), True)
            yield f"the loss has {{0:.4g}} times {name} more", [score]
        step = np.diff(v.reshape(*self.grid, -1), axis=0)
        pulled = np.pad(step, ((1, 0), (0, 0), (0, 0))) - np.pad(step, ((0, 1), (0, 0), (0, 0)))
        each = np.pad((step**2).sum(axis=-1), ((1, 0), (0, 0))).ravel()
        what = "the squared change of the outputs from step to step"
        score = Score("", each, 2 * pulled.reshape(v.shape), True)
        yield f"the loss has {{0:.4g}} times {what} more", [score]
        if self.labels is not None:
            name = "the target has {0:.4g} added for the label and {1:.4g} for the other classes"
            parts, log = [t > t.mean(), t <= t.mean()], np.log(np.maximum(self.p, 1e-300))
            for more, p in (("", self.p), (", though the gradient is the softmax less it", 0)):
                yield (
                    name + more,
                    [
                        self.score("", -(k * log).sum(axis=1), p * k.sum(axis=1, keepdims=True) - k)
                        for k in parts
                    ],
                )

    @property
    def _small(self) -> bool:
        return self.v.size * self.v.shape[1] <= WORK

    def _targets(self) -> Scored:
        if self.labels is None:
            for move in self.moves:
                yield f"the target {move.name}", *self.of(self.v, self.rearranged(move, self.t))
            for name, target in self._numbers():
                yield f"the target {name}", *self.of(self.v, target)
            return
        C = self.v.shape[1]
        labels = [(m.name, self.rearranged(m, self.labels)) for m in self.moves if m.picks]
        classes = {n: text for n, text in CLASSES.items() if not text.startswith("0 y")
                   or int(text[6:]) < C}  # fmt: skip
        labels += [(name, self.value(text)) for name, text in classes.items()]
        for name, label in labels:
            yield f"the label {name}", *self.of(self.v, self.soft(label))
        for name, text in LABELS.items():
            target = self.value(text)
            yield f"the label {name}", *self.of(self.v, target)
            yield f"the label {name}", np.nan * self.each, self.p - target

    def _numbers(self) -> Iterator[tuple[str, Array]]:
        """Other targets that are numbers."""
        yield from ((name, self.value(text)) for name, text in NUMBERS.items())
        grid = self.t.reshape(*self.grid, -1)
        for name, scale in scalings("all targets"):
            yield f"is {name}", scale(grid).reshape(self.t.shape)

    def _formulas(self) -> Scored:
        v, t, H = self.v, self.t, self.tape.rows.shape[-1]
        for name, loss, of_view, view in losses(self.labels is None) if self._small else ():
            text, each = f"the loss is {name}", loss(v, t)
            yield text, each, gradient(loss, v, t)
            if view is not VIEWS[""]:
                text = f"{text}, and the gradient leaves out the slope of that"
                yield text, each, gradient(of_view, view(v), t)
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
            yield f"{text}, and its gradient goes back there", each, back

    def _slopes(self) -> Scored:
        """Other gradients of the right loss."""
        of_labels = self.labels is not None
        texts = {} if of_labels else {f"takes {e} for the error": f"2 ({text}) / C"
                                      for e, text in ERRORS.items()}  # fmt: skip
        yield from self._of_the_softmax() if of_labels else ()
        options: list[tuple[str, Array]] = []
        for what, view in VIEWS.items() if of_labels else ():
            name = f"takes {what or 'the logits'}"
            options.append((f"{name} for the softmax", view(self.v) - self.t))
            options.append((f"{name} of the softmax for the softmax", view(self.p) - self.t))
        factors = FACTORS_OF_LABELS if of_labels else {}
        texts |= SLOPES_OF_LABELS if of_labels else {}
        for table in (factors, FACTORS):
            texts |= {f"is multiplied by {f}": f"d ({text or f})" for f, text in table.items()}
        options += [(name, self.value(text)) for name, text in (texts | SLOPES).items()]
        yield from ((f"the gradient of the loss {name}", self.each, dv) for name, dv in options)

    def _of_the_softmax(self) -> Scored:
        """Softmaxes that are divided by other sums, each in the loss with the softmax less the
        target for its gradient."""
        largest = self.v.max(axis=1, keepdims=True)
        for rest, top in (("", self.v.max()), (", below each row's largest,", largest)):
            exp = np.exp(self.v - top).reshape(*self.grid, -1)
            for what, axes in (("the examples", 1), ("the steps", 0), ("all predictions", (0, 1)),
                               ("all outputs", None)):  # fmt: skip
                q = (exp / exp.sum(axis=axes, keepdims=True)).reshape(self.v.shape)
                yield self.softmax(f"over {what}{rest} for that over the classes", q)
        yield self.softmax("divided by a mean, not a sum", self.p * self.v.shape[1])
        for c, others in enumerate(~np.eye(self.v.shape[1], dtype=bool)[:CLASS]):
            q = self.p / np.maximum((self.p * others).sum(axis=1, keepdims=True), 1e-300)
            name, each, slope = self.softmax(f"divided by its sum without class {c}", q)
            yield name, each, slope
            name = f"the loss leaves class {c} out of the softmax's sum"
            yield name, each, q * others * self.t.sum(axis=1, keepdims=True) - self.t

    def softmax(self, name: str, q: Array) -> tuple[str, Array, Array]:
        """What a softmax q in the loss gives that has q less the target for its gradient."""
        name = f"the loss takes the softmax {name}"
        return name, -(self.t * np.log(q)).sum(axis=1), q - self.t
