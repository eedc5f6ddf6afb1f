"""Parts of a computation in a coarser type: what is rounded to it there, to the nearest number.

A place of the naive net, or a line of the program, passes through the type; the search compares
them with float64 results that are off by as much.

Checked by: tests/check/test_mistake_names.py.
"""

import numpy as np

from refnet.batch import Batch
from refnet.check.mistakes.base import Mistakes, mistake
from refnet.check.mistakes.formulas import TYPES
from refnet.nets.gradients import Net

__all__ = ["of_the_types"]


def of_the_types(net: Net, batch: Batch) -> Mistakes:
    """Mistakes that round a place to a type which is coarser than that of x."""
    for name in TYPES:
        if name == "float32" and batch.x.dtype != np.float64:
            continue
        kind, rounded = name.split()[0], f"coarse(v, '{name}')"
        lines, pulls = (
            f"v + [{edit}(s, '{{}}', '{kind}')]" for edit in ("through", "gradient_through")
        )
        places = {
            f"every activation passes through {name}": {"act": f"coarse(f(a), '{name}')"},
            f"the parameters and inputs are rounded to {name}": dict.fromkeys(
                ("p", "x", "y", "h0"), rounded
            ),
            f"the factors of matrix products are rounded to {name}": {
                "product": f"f(coarse(a, '{name}'), coarse(b, '{name}'))"
            },
            f"the gradient that is carried passes through {name}": {
                "e": rounded,
                "pulls": pulls.format("h"),
            },
        }
        if batch.x.ndim == 3:
            old, states = {"lines": lines.format("y")}, {"lines": lines.format("h")}
            read = f"the states that Whh reads pass through {name}"
            back = {"pulls": pulls.format("y")}
            places |= {
                read: old,
                f"{read}, and so does their gradient": old | back,
                f"the gradient that is carried through Whh passes through {name}": back,
                f"the states pass through {name}": states,
                f"the states pass through {name}, and so do their gradients": {
                    **states,
                    "pulls": pulls.format("h"),
                },
                f"the sums over the steps are in {name}": {"pulls": f"v + sums_in(s, '{kind}')"},
            }
        for label, change in places.items():
            yield mistake(label, common=False, **change)
