"""``refnet.matrices.transitions`` by its short name, for ``from refnet.transitions import SVD``.

>>> from refnet.transitions import transition
>>> transition("cayley")
CayleyMap()

Checked by: tests/project/test_public_names.py.
"""

import sys

from refnet.matrices import transitions
from refnet.matrices.transitions import *  # noqa: F403

sys.modules[__name__] = transitions  # one module under both names
