"""Every net once more, in plain loops, with a place for a mistake at every step.

The cells stand here again because a mistake changes what happens within them, and because the
judge would share every error of ``refnet.cells`` if it used them; without a change the results
agree with the reference. In a stack, mistakes are made in putting cells together, and what is
inside a cell is the reference's own.

A *change* maps names of places to functions ``f(value, s)``: ``value`` is what is right there, the
result is used instead, and the pass ``s`` holds all that was computed before (``s.t`` is the step
or layer). Changes are applied one after the other (to ``grads`` in reverse), so that two mistakes
at once are two changes.

Places, with the values that they see: ``made_of`` (the parameters, before matrices are made of
them), ``p`` (the parameters that the cell uses; of a stack those that are given), ``x``, ``y``,
``mask``, ``weights`` (of the predictions), ``final`` (the final states' cotangents), ``h0``;
``sigmoid`` and ``act`` (functions of a or c), with ``sigmoid_pull`` and ``act_pull`` (functions of
a, of the value and of the cotangent); ``old`` (the state that rnn and lstm read), ``a``, ``o`` (an
LSTM's output gate),
``peep`` (the cell that the output gate sees), ``h``, ``steps`` (of a read-out at the last step),
``rows`` (what is read out), ``each`` (weighted losses and gradients, before the division; ``s.raw``
has them before the weights), ``divisor``; ``direct`` (the read-out's gradient, by state), ``e`` and
``q`` (complete gradients of h and c), ``clip`` (its bound), ``da``, ``rec`` (da as Whh sees it),
``W`` (the matrix of the backward recursion), ``carry`` (e and q, one step earlier), ``past`` and
``seen`` (h and x in the weight gradients), ``parts`` (one step's share of them), ``grads`` (before
the gain), ``report`` (all). Edits within a cell are those of its program
(``refnet.check.programs``).

Of a stack: ``into`` and ``out`` (functions of values (T, B, N), lengths and a cell's suffix: the
order in which the cell sees its input and gives its output), ``pull_out`` and ``pull_into`` (the
same backward), ``order`` (a slice of the cells side by side), ``padding`` (what makes a layer's
output 0 after a sequence's end), ``below`` (each direction's gradient of a layer's input).

Checked by: tests/check/test_naive.py.
"""

import numpy as np

from refnet.batch import Batch, Params
from refnet.check.naive.base import FORWARD, Change, Pass, Product
from refnet.check.naive.cells import PEEPHOLES
from refnet.check.naive.nets import Feedforward, Recurrent
from refnet.check.naive.stacked import Stack
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["Change", "FORWARD", "PEEPHOLES", "Pass", "covers", "run"]


def run(
    net: Net,
    params: Params,
    batch: Batch,
    *changes: Change,
    product: Product = np.matmul,
    fused: bool = False,
    backward: bool = True,
) -> Params:
    """Loss, outputs, states and gradients by the names of ``Certified.named``, in the dtype of x.

    ``product``: what multiplies matrices; ``fused``: inputs, state and bias in one product;
    ``backward``: whether the gradients are wanted.
    """
    if isinstance(net, StackedNet):
        kind: type[Pass] = Stack
    else:
        kind = Recurrent if isinstance(net, RecurrentNet) else Feedforward
    return kind(net, params, batch, changes, product, fused, backward).run()


def covers(net: Net, params: Params) -> bool:
    """Whether ``run`` knows this net: a stack, or one layer of four cells with sigmoid gates."""
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
