"""A stack of layers with mistakes in how its cells are joined.

Checked by: tests/check/test_stacked_mistakes.py.
"""

from refnet.batch import Params
from refnet.check.naive.base import Pass
from refnet.check.programs.layers import Change, Layers
from refnet.nets.stacked import StackedNet

__all__ = ["Stack"]


class Stack(Pass):
    """Its cells are the reference's own, and so is its loss."""

    def run(self) -> Params:
        """Without the states, which are those of its cells."""
        assert isinstance(self.net, StackedNet)
        batch = self.batch._replace(x=self.x, y=self.y, mask=self.mask, weights=self.weights)
        self.layers = Layers(self.net, self.at("p", self.params), batch)
        change = self.at("pulls", self.at("edges", Change("")))
        results = self.layers.run(change) or {}
        grads = {name[1:]: value for name, value in results.items() if name[0] == "d"}
        grads = self.at("grads", grads)
        return self.reported({name: results[name] for name in ("loss", "outputs")}, grads)
