"""What stands around the cells, once more, in plain loops, with places for mistakes.

A *change* maps names of places to functions ``f(value, s)``: ``value`` is what is right there, the
result is used instead, and the pass ``s`` holds all that was computed before (``s.t`` is the step
or layer). Changes are applied one after the other (to ``grads`` in reverse), so that two mistakes
at once are two changes. A recurrent cell is a program (``refnet.check.programs``), whose text and
edits are such values.

Places, with the values that they see: ``made_of`` (the parameters, before matrices are made of
them), ``p`` (the parameters that the cell uses; of a stack those that are given), ``x``, ``y``,
``mask``, ``weights`` (of the predictions), ``final`` (the final states' cotangents), ``h0``;
``sigmoid`` and ``act`` (functions of a or c), with ``sigmoid_pull`` and ``act_pull`` (functions of
a, of the value and of the cotangent); ``steps`` (of a read-out at the last step), ``rows`` (what is
read out), ``each`` (weighted losses and gradients, before the division; ``s.raw`` has them before
the weights), ``divisor``; ``direct`` (the read-out's gradient, by state), ``clip`` (its bound),
``grads`` (before the gain), ``report`` (all).

Of a recurrent cell: ``cell`` (its text), ``m`` (a variable of it: the mask), ``lines`` and
``pulls`` (edits of ``s.program``, forward and backward).

Of a feedforward net: ``a``, ``h``, ``e`` (the gradient of h), ``da``, ``W`` (the matrix that the
gradient goes through), ``past`` (h in the weight gradients).

Of a stack: ``edges`` and, backward alone, ``pulls``: a change of how its cells are joined
(``refnet.check.programs.layers``; ``s.layers``).

Checked by: tests/check/test_naive.py.
"""

from refnet.check.naive.base import FORWARD, Change, Pass
from refnet.check.naive.nets import PEEPHOLES

__all__ = ["Change", "FORWARD", "PEEPHOLES", "Pass"]
