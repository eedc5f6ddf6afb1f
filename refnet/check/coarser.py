"""Part of a computation in a coarser type, by the numbers that it gives or how far they are off.

Checked by: tests/check/test_mistake_names.py, tests/check/test_repeats.py.
"""

from typing import Any

import numpy as np

from refnet.check.arithmetic import arithmetic
from refnet.check.noise import spread

__all__ = ["FORWARD", "Coarser"]

FORWARD = ("loss", "outputs")
COARSER = (("float32", 2.0**-24), ("float16, TF32 or bfloat16", 2.0**-11), ("bfloat16", 2.0**-8))
"""Coarser types that part of a computation may be in, with the least unit roundoff."""
BY_CHANCE = 2.0**-24
"""The chance with which numbers may be those of a coarser type although they are not in it."""


class Coarser:
    """The search for a coarser type among results with something wrong."""

    def __init__(self, search: Any) -> None:
        self.search = search

    def stored(self) -> str:
        """Whether the wrong arrays hold the numbers of a coarser type alone, wrong by no more than
        its rounding."""
        search = self.search
        if search.shaped():
            for kind in (arithmetic(name) for name in ("bfloat16", "float16", "float32")):
                entries = sum(np.count_nonzero(search.given[name]) for name in search.wrong)
                if (
                    kind.u > search.u
                    and (search.u / kind.u) ** entries <= BY_CHANCE
                    and all(kind.holds(search.given[name]).all() for name in search.wrong)
                    and all(self.within(6 * kind.u, name, kind.tiny) for name in search.given)
                ):
                    return (
                        f"part of the computation is in {kind}: the differences have its size, "
                        f"and all numbers are those of {kind}"
                    )
        return search.shaped() and self._decimals() or ""

    def _decimals(self) -> str:
        """Whether the wrong arrays are the right ones rounded to some decimals."""
        arrays = [(self.search.given[name], self.search.true[name]) for name in self.search.wrong]
        if sum(given.size for given, _ in arrays) > 1:
            for n in range(2, 13):
                if all((given == np.round(right, n)).all() for given, right in arrays):
                    return f"{', '.join(sorted(self.search.wrong))}: rounded to {n} decimals"
        return ""

    def coarse(self) -> str:
        """Whether everything is wrong, each quantity by as much as the rounding of a coarser type
        makes it; or float32 results, those of the forward pass among the wrong ones, are off as
        products of factors rounded to TF32 are: no entry by more, and a wrong quantity by that
        size. A smooth mistake of this size is not ``rerolled``."""
        search = self.search
        rerolled = search.rerolled
        if not rerolled or not search.shaped():
            return ""
        if search.all.is_net and not search.wrong & set(FORWARD):
            return ""
        for kind, u in COARSER:
            if (
                u > search.u
                and search.wrong == set(search.given)
                and all(
                    self.within(6 * u, name) and self._typical(u, name) for name in search.given
                )
            ):
                said = (
                    f"perhaps part of the computation is in {kind}: the differences have its size, "
                    "and come out anew where inputs differ by as much"
                )
                return said if rerolled(u) else ""
        if search.u != 2.0**-24 or not rerolled(2.0**-11):
            return ""
        sigma = spread(search.all.certified, "tf32")
        off = {name: abs(search.given[name] - search.true[name]) for name in search.given}
        z = {name: np.where(off[name] == 0, 0, off[name] / sigma[name]) for name in off}
        if (
            all((value <= 6).all() for value in z.values())
            and max(float(np.sqrt((z[name] ** 2).mean())) for name in search.wrong) >= 1 / 8
        ):
            return (
                "perhaps part of the computation is in float16 or TF32: judged as tf32 all of "
                "it is explained by rounding"
            )
        return ""

    def within(self, u: float, name: str, least: float = 0) -> bool:
        """Whether a quantity is at most as far off as sigma is for a unit roundoff ``u``, or by
        the ``least`` that it may be."""
        search = self.search
        off = abs(search.given[name] - search.true[name])
        return bool((off <= np.maximum(u / search.u * search.sigma[name], least)).all())

    def _typical(self, u: float, name: str) -> bool:
        """Whether a quantity is off by as much as rounding to ``u`` makes it, in the root mean
        square, or by an eighth, as if a part of the computation is rounded so: a smooth mistake
        leaves some quantities right, or is larger in others. A few numbers may be right by
        chance."""
        search = self.search
        size = search.given[name].size
        z = search.in_sigmas(name, search.given[name] - search.true[name]) * search.u / u
        return bool((0.125 if size > 9 else 0) <= z / max(size, 1) ** 0.5 <= 4)
