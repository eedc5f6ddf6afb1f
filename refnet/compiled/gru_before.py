"""The gated recurrent unit of ``refnet.cells.gru_before``, compiled: ``refnet.compiled.gru``
with the reset before the product."""

from refnet.batch import Array, Params
from refnet.cells.gru_before import CANDIDATE, GATES, SIGMOID, STATES, Tape, init
from refnet.compiled.gru import recur, recur_back
from refnet.maths.activations import Activation

__all__ = ["CANDIDATE", "GATES", "STATES", "Tape", "backward", "forward", "init"]


def forward(p: Params, x: Array, h0: Array, act: Activation, gate: Activation = SIGMOID) -> Tape:
    """As ``refnet.cells.gru_before.forward``, float32 or float64; the tape's ``a`` may be None.

    Checked by: tests/test_compiled.py::test_gated_matches_the_reference.
    """
    x, h, a, v, _ = recur("gru_before.forward", p, x, h0, act, gate, before=True)
    return Tape(x, h, a, v)


def backward(p: Params, tape: Tape, dh: Array, act: Activation, inputs: bool = True,
             gate: Activation = SIGMOID, clip: float | None = None) -> Params:
    """As ``refnet.cells.gru_before.backward``, float32 or float64; the bits as in
    ``refnet.compiled.rnn.backward``.

    Checked by: tests/test_compiled.py::test_gated_matches_the_reference.
    """
    return recur_back("gru_before.backward", p, tape, tape.x[:0], dh, act, inputs, gate, clip,
                      before=True)
