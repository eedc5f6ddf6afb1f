"""Judging other implementations: verdicts, adapters, golden vectors."""

from typing import TYPE_CHECKING

from refnet.common.face import face

if TYPE_CHECKING:
    from refnet.check.calls import assert_gradients as assert_gradients, judge as judge
    from refnet.check.tolerance import tolerances as tolerances
    from refnet.check.verdict import Judgement as Judgement, Verdict as Verdict, compare as compare
else:
    __getattr__, __dir__ = face(__name__, __file__)
