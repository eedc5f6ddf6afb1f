"""What every cell checks and clips alike."""

from refnet.batch import Array, Params
from refnet.maths.numeric import clamp

__all__ = ["check_shapes", "clip_into"]


def check_shapes(cell: str, p: Params, x: Array, h0: Array, gates: int, states: int = 1,
                 vectors: tuple[str, ...] = ()) -> None:
    """Raise ValueError, with the likely repair, if a gated cell's shapes do not fit together.

    ``vectors``: the names of further parameters of shape (H,).
    """
    rows, inputs = p["Wxh"].shape
    if x.ndim != 3 or x.shape[2] != inputs:
        hint = " For one sequence, pass x[:, None, :]." if x.ndim == 2 else ""
        raise ValueError(f"{cell}.forward: x has shape {x.shape}; need (T, B, D) with D = "
                         f"{inputs}, because Wxh is {p['Wxh'].shape}.{hint}")
    hidden, rest = divmod(rows, gates)
    if rest:
        raise ValueError(f"{cell}.forward: Wxh has shape {p['Wxh'].shape}; need ({gates} H, D): "
                         f"one block of H rows for each of the {gates} gates")
    need = {"Whh": (rows, hidden), "bh": (rows,), **{name: (hidden,) for name in vectors}}
    for name, shape in need.items():
        if p[name].shape != shape:
            raise ValueError(f"{cell}.forward: {name} has shape {p[name].shape}; need {shape}, "
                             f"because Wxh is {p['Wxh'].shape} and there are {gates} gates")
    start = (x.shape[1], hidden) if states == 1 else (states, x.shape[1], hidden)
    if h0.shape != start:
        raise ValueError(f"{cell}.forward: h0 has shape {h0.shape}; need {start}, because x is "
                         f"{x.shape} and H = {hidden}")


def clip_into(da: Array, clip: float | None) -> int:
    """Bring da's entries into [-clip, clip], in place, unless clip is None; how many changed."""
    if clip is None:
        return 0
    da[...], changed = clamp(da, clip)
    return changed
