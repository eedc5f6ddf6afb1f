"""An LSTM, a read-out and its mean cross-entropy by hand, in the inputs' own type."""

import numpy as np


def softmax(v):
    e = np.exp(v - v.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def read(p, h, y):
    """The loss and outputs of these states (B, H), and the loss's gradient in the outputs."""
    v, kind = h @ p["Why"].T + p["by"], h.dtype.type
    q = softmax(v)
    loss = kind(-np.log(q[range(len(y)), y]).mean())
    return loss, v, (q - np.eye(v.shape[1], dtype=h.dtype)[y]) / kind(len(y))


def usual_sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm(p, batch, sigmoid=usual_sigmoid, tanh=np.tanh, leak=0, coupled=False):
    """An LSTM without peepholes by hand, read out at the last step, in the inputs' own type;
    ``coupled``: with f = 1 - i."""
    x, y, *_ = batch
    G = 3 if coupled else 4
    (T, B, _), H = x.shape, len(p["bh"]) // G
    h = [np.zeros((B, H), x.dtype)]
    c, residuals = [h[0]], []
    for t in range(T):
        i, *f, g, o = np.split(x[t] @ p["Wxh"].T + h[t] @ p["Whh"].T + p["bh"], G, axis=1)
        i, g, o = sigmoid(i), tanh(g), sigmoid(o)
        f = 1 - i if coupled else sigmoid(*f)
        c.append(f * c[t] + i * g)
        residuals.append((i, f, g, o, tanh(c[-1])))
        h.append(o * residuals[t][4])
    loss, v, dv = read(p, h[T], y)
    grads = {name: np.zeros_like(p[name]) for name in ("Whh", "Wxh", "bh")}
    dh, dc, dx = dv @ p["Why"], np.zeros_like(c[0]), np.empty_like(x)
    for t in reversed(range(T)):
        i, f, g, o, k = residuals[t]
        dc = dc + dh * o * (1 - k * k)
        di = dc * (g - c[t] if coupled else g) * i * (1 - i) * x.dtype.type(1 + leak)
        df = [] if coupled else [dc * c[t] * f * (1 - f)]
        da = np.concatenate([di, *df, dc * i * (1 - g * g), dh * k * o * (1 - o)], axis=1)
        grads["Whh"] += da.T @ h[t]
        grads["Wxh"] += da.T @ x[t]
        grads["bh"] += da.sum(axis=0)
        dx[t], dh, dc = da @ p["Wxh"], da @ p["Whh"], dc * f
    return {
        **{f"d{name}": value for name, value in grads.items()},
        "dWhy": dv.T @ h[T],
        "dby": dv.sum(axis=0),
        "dx": dx,
        "loss": loss,
        "outputs": v,
        "h": np.stack(h),
        "c": np.stack(c),
    }


def two_layers(p, batch, bug=""):
    """A tanh net of two layers by hand, read out at every step; ``bug``: what it does otherwise."""
    x, y, *_ = batch
    (T, B, _), H = x.shape, p["Whh_l0"].shape[0]
    flip = -1 if bug == "reversed" else 1
    seen, states = [x[::flip]], []
    for s in ("_l0", "_l1"):
        h = np.zeros((T + 1, B, H))
        h[0] = states[0][T] if states and bug == "started" else 0
        for t in range(T):
            h[t + 1] = np.tanh(seen[-1][t] @ p[f"Wxh{s}"].T + h[t] @ p[f"Whh{s}"].T + p[f"bh{s}"])
            h[t + 1] = np.clip(h[t + 1], -0.3, 0.3) if bug == "bounded" else h[t + 1]
        states.append(h)
        below = seen[-1] if bug == "residual" and s == "_l1" else 0
        seen.append(h[1:][:: flip if s == "_l0" else 1] + below)
    loss, v, dv = read(p, seen[2].reshape(T * B, H), y.ravel())
    grads = {"Why": dv.T @ seen[2].reshape(T * B, H), "by": dv.sum(axis=0)}
    d, dh = (dv @ p["Why"]).reshape(T, B, H), np.zeros((B, H))
    for n in (1, 0):
        above, W, V = d, p[f"Whh_l{n}"], p[f"Wxh_l{n}"]
        dW, dV, db, d = np.zeros_like(W), np.zeros_like(V), 0, np.zeros_like(seen[n])
        dh = dh if bug == "kept" else np.zeros((B, H))
        for t in reversed(range(T)):
            da = (dh + above[t]) * (1 - states[n][t + 1] ** 2)
            dW, dV, db = dW + da.T @ states[n][t], dV + da.T @ seen[n][t], db + da.sum(axis=0)
            d[t], dh = da @ V, da @ W * (t % 3 > 0 or bug != "cut")
            dh = np.clip(dh, -0.003, 0.003) if bug == "clipped" else dh
        d = d + (above if bug == "residual" and n else 0)
        d = np.clip(d, -0.004, 0.004) if bug == "between" and n else d
        d = d[..., ::-1] if bug == "units" else d
        grads |= {f"Whh_l{n}": dW, f"Wxh_l{n}": dV, f"bh_l{n}": db}
    if bug == "exchanged":
        grads["Whh_l0"], grads["Whh_l1"] = grads["Whh_l1"], grads["Whh_l0"]
    results = {"loss": loss, "outputs": v.reshape(T, B, -1), "dx": d}
    return results | {f"d{name}": value for name, value in grads.items()}
