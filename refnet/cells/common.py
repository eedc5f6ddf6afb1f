"""What all cells share."""

from refnet.batch import Array
from refnet.maths.numeric import Number, clamp

__all__ = ["clip_into"]


def clip_into(da: Array, clip: Number | None) -> int:
    """Bring da's entries into [-clip, clip], in place, unless clip is None; return how many were
    changed."""
    if clip is None:
        return 0
    da[...], changed = clamp(da, clip)
    return changed
