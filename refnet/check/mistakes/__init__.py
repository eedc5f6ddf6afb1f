"""The usual mistakes and misunderstandings in implementations of nets, as changes of the naive
net: named by the judge.

A name says what the other implementation does, against the reference's conventions.
Checked by: tests/check/test_mistake_names.py.
"""

from refnet.batch import Batch, Params
from refnet.check.mistakes.backward import of_the_recursion, of_the_sums
from refnet.check.mistakes.base import Mistake, Mistakes
from refnet.check.mistakes.gates import of_the_activation, of_the_gates
from refnet.check.mistakes.inputs import of_inputs, of_parameters, of_readout
from refnet.check.mistakes.layers import of_the_layers
from refnet.check.mistakes.scoring import faint, of_the_classes, of_the_labels, of_the_loss
from refnet.check.mistakes.stacked import of_the_stack
from refnet.check.mistakes.types import of_the_types
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["Mistake", "faint", "mistakes", "of_the_types"]


def mistakes(net: Net, params: Params, batch: Batch) -> Mistakes:
    """Every mistake that can be made with this net and batch, the most usual ones first."""
    if isinstance(net, StackedNet):
        yield from of_the_stack(net, params, batch)
        return
    yield from of_the_loss(net, batch)
    if isinstance(net, RecurrentNet):
        yield from of_inputs(net, params, batch)
        yield from of_parameters(net, params)
        yield from of_readout(net, batch)
        yield from of_the_recursion(net, batch)
        yield from of_the_sums(net, batch)
        yield from of_the_gates(net, params, batch)
    else:
        yield from of_the_layers(net, params)
    yield from of_the_activation(net)
    yield from of_the_classes(net, batch)
    yield from of_the_labels(net, batch)
