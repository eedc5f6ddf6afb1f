"""A recurrent net of one layer, rnn, lstm or gru, in tinygrad, for the judge:

    refnet check function mine.py:gradients --cell lstm

It gets p, a dict of NumPy arrays with Whh (G H, H), Wxh (G H, D) and bh (G H,) for G gates, bhn
(H,) of a gru, Why (C, H) and by (C,); x (T, B, D); y, the classes, (B,) or, with --readout every,
(T, B); no mask; and returns what it computed by name.
"""

from tinygrad import Tensor


def step(p, h, c, at):
    """The next states h and c of a cell."""
    z, u = at @ p["Wxh"].T + p["bh"], h @ p["Whh"].T
    gates = p["Whh"].shape[0] // p["Whh"].shape[1]
    if gates == 1:
        return (z + u).tanh(), c
    if gates == 4:
        i, f, g, o = (z + u).chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    (zr, zk, zn), (ur, uk, un) = z.chunk(3, dim=1), u.chunk(3, dim=1)
    k = (zk + uk).sigmoid()
    return (1 - k) * (zn + (zr + ur).sigmoid() * (un + p["bhn"])).tanh() + k * h, c


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    p = {name: Tensor(value).realize() for name, value in p.items()}
    x, last = Tensor(x).realize(), y.ndim == 1
    h = c = Tensor.zeros(x.shape[1], p["Whh"].shape[1], dtype=x.dtype)
    states = []
    for t in range(x.shape[0]):
        h, c = step(p, h, c, x[t])
        states.append(h)
    rows = h if last else Tensor.stack(*states).flatten(0, 1)
    outputs = rows @ p["Why"].T + p["by"]
    loss = outputs.sparse_categorical_crossentropy(Tensor(y.reshape(-1)))
    dx, *dp = loss.gradient(x, *p.values())
    results = {"loss": loss, "dx": dx, **dict(zip([f"d{name}" for name in p], dp))}
    results["outputs"] = outputs if last else outputs.reshape(*y.shape, -1)
    Tensor.realize(*results.values())
    return {name: value.numpy() for name, value in results.items()}
