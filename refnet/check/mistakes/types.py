"""Parts of a computation in a coarser type: what is rounded to it there, to the nearest number."""

import numpy as np

from refnet.batch import Batch
from refnet.check.mistakes.base import Mistakes, mistake
from refnet.check.mistakes.formulas import TYPES
from refnet.nets.gradients import Net

__all__ = ["of_the_types"]


def of_the_types(net: Net, batch: Batch) -> Mistakes:
    """Each place in each type that is coarser than that of x."""
    for name in TYPES:
        if name == "float32" and batch.x.dtype != np.float64:
            continue
        rounded, states = f"coarse(v, '{name}')", f"the states pass through {name}"
        places = {
            f"every activation passes through {name}": {"act": f"coarse(f(a), '{name}')"},
            f"the parameters and inputs are rounded to {name}": dict.fromkeys(
                ("p", "x", "y", "h0"), rounded
            ),
            f"the factors of matrix products are rounded to {name}": {
                "product": f"f(coarse(a, '{name}'), coarse(b, '{name}'))"
            },
            f"the gradient that is carried passes through {name}": {"e": rounded},
        }
        if batch.x.ndim == 3:
            old = {"old": rounded, "past": rounded}
            read = f"the states that Whh reads pass through {name}"
            places |= {
                read: old,
                f"{read}, and so does their gradient": {
                    **old,
                    "carry": f"(coarse(v[0], '{name}'), v[1])",
                },
                f"the gradient that is carried through Whh passes through {name}": {
                    "carry": f"(coarse(v[0], '{name}'), v[1])"
                },
                states: {"h": rounded},
                f"{states}, and so do their gradients": {"h": rounded, "e": rounded},
                f"the sums over the steps are in {name}": {"parts": rounded},
            }
        for label, change in places.items():
            yield mistake(label, common=False, **change)
