"""What every cell does alike."""

from refnet.batch import Array
from refnet.maths.numeric import clamp

__all__ = ["clip_into"]


def clip_into(da: Array, clip: float | None) -> int:
    """Bring da's entries into [-clip, clip], in place, unless clip is None; how many changed."""
    if clip is None:
        return 0
    da[...], changed = clamp(da, clip)
    return changed
