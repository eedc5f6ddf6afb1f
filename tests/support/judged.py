"""A certified case: what the reference gives, and the verdict on other results."""

from functools import cached_property

from refnet.check import compare, judge
from refnet.check.cases import reference_results
from refnet.check.conventions import Readings
from refnet.check.noise import spread
from refnet.exact import certify
from support.drawn import drawn


class Judged:
    """A net with drawn parameters and a batch, which a test may change before it asks for more."""

    def __init__(self, net, *sizes, **how):
        self.net = net
        self.params, self.batch = drawn(net, *sizes, **how)

    @property
    def given(self):
        return self.params, self.batch

    @cached_property
    def certified(self):
        return certify(self.net, *self.given)

    @cached_property
    def right(self):
        """The reference's results."""
        return reference_results(self.net, *self.given)

    @cached_property
    def sigma(self):
        """The spread of rounding in the type of x."""
        return spread(self.certified, self.batch.x.dtype)

    @cached_property
    def readings(self):
        """Of one mistake at a time."""
        return Readings(self.certified, pairs=False)

    def name(self, theirs):
        """The name of the one mistake that explains arrays, or ""."""
        how = {"sigma": self.sigma, "readings": self.readings, "required": ()}
        return self(theirs, **how).convention

    def __call__(self, theirs, **options):
        """The verdict on arrays, by ``compare``."""
        return compare(theirs, self.certified, **options)

    def changed(self, **changes):
        """That on the reference's results but for some."""
        return self({**self.right, **changes})

    def judge(self, theirs, **options):
        """The verdict on arrays or a function, by ``judge``."""
        return judge(self.net, theirs, *self.given, **options)
