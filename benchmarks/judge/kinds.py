"""Kinds of bug that people write, as changes of the text of three programs.

A line is: the program, the net (a cell, then ``every``, ``mask`` and ``peepholes``), the text that
is replaced, what replaces it, what the location must say, and what a name must say (regular
expressions).
"""

from typing import NamedTuple


class Kind(NamedTuple):
    """A bug, and what a person would want to read of it; ``name`` is empty if none is wanted."""

    program: str
    net: str
    old: str
    new: str
    where: str
    name: str


BACK = r"after the read-out's gradients|backward pass"
FORWARD = "forward pass"
LOSS = r"loss's gradient in the outputs|in the loss|read-out|predictions|example|class"
N, T, C = "numpy", "torch", "c"

IN_NUMPY = [
    # a gate's gradient: an operand, a slope, a cotangent
    Kind(
        N, "lstm", "dg = dc * i * (1 - g**2)", "dg = dc * i * (1 - ag**2)", "gate g", "slope|tanh'"
    ),
    Kind(N, "lstm", "di = dc * g * i * (1 - i)", "di = dc * g * f * (1 - f)", "gate i", "slope"),
    Kind(N, "lstm", "df = dc * c[t] * f", "df = dc * c[t + 1] * f", "gate f", r"c\[t ?\+ ?1\]"),
    Kind(N, "lstm", "do = dh * k * o", "do = dh * c[t + 1] * o", "gate o", r"c"),
    Kind(N, "lstm", "i * (1 - i)", "i * (1 - g)", "gate i", "slope|1 - g"),
    Kind(N, "lstm", "di = dc * g * i", "di = dc * i * i", "gate i", "gate i"),
    Kind(N, "lstm", "(1 - g**2)", "(1 - g)", "gate g", "square|slope"),
    Kind(N, "lstm", "do = dh * k * o * (1 - o)", "do = dh * k * o", "gate o", "slope"),
    Kind(N, "lstm", "dg = dc * i *", "dg = dc * f *", "gate g", "gate g"),
    Kind(N, "lstm", "df = dc * c[t] *", "df = dc * h[t] *", "gate f", "gate f"),
    Kind(N, "lstm", "df = dc * c[t] *", "df = dh * c[t] *", "gate f", "gate f"),
    Kind(N, "lstm", "do = dh * k", "do = dc * k", "gate o", "gate o"),
    Kind(N, "lstm", "df = dc * c[t] * f * (1 - f)", "df = dc * c[t] * f * f", "gate f", "slope"),
    Kind(N, "lstm", "dg = dc * i * (1 - g**2)", "dg = -dc * i * (1 - g**2)", "gate g", "sign|-1"),
    Kind(N, "lstm", "dg = dc * i * (1 - g**2)", "dg = dc * i * (1 - k**2)", "gate g", "gate g"),
    Kind(N, "gru", "dz = dh * (h[t] - n)", "dz = dh * (h[t + 1] - n)", "gate z", "gate z|of z"),
    Kind(N, "gru", "(h[t] - n) * k * (1 - k)", "(h[t] - n)", "gate z", "slope"),
    Kind(N, "gru", "dn = dh * (1 - k)", "dn = dh * k", "gate n", "gate n"),
    Kind(N, "gru", "dr = ds * s * r * (1 - r)", "dr = ds * h[t] * r * (1 - r)", "gate r", "gate r"),
    Kind(N, "gru", "dr = ds * s * r", "dr = dh * s * r", "gate r", "gate r"),
    Kind(N, "gru_before", "ds * s * r * (1 - r)", "ds * s * r", "gate r", "slope"),
    Kind(N, "gru_before", "back = back + ds * r", "back = back", BACK, "reset|r"),
    Kind(N, "rnn", "dh * (1 - h[t + 1] ** 2)", "dh * (1 - h[t] ** 2)", BACK, "earlier"),
    Kind(N, "rnn", "dh * (1 - h[t + 1] ** 2)", "dh * (1 - h[t + 1]) ** 2", BACK, "slope|tanh'"),
    # what is carried
    Kind(
        N, "lstm", "dc = dc * f\n", "dc = dc * (0 if t % 5 == 0 else f)\n", "step 9|step 10", "cell"
    ),
    Kind(N, "lstm", "dc = dc * f\n", "dc = dc * tape[max(t - 1, 0)][1]\n", BACK, "dc|cell"),
    Kind(N, "lstm", "dc = dc * f\n", "dc = dc * i\n", BACK, "dc|cell"),
    Kind(N, "lstm", "dc = dc * f\n", "dc = dc * f * (t != 7)\n", "step 6|step 7", "cell"),
    Kind(N, "lstm", "dh = back + dr @ W", "dh = back + dr @ W * (t % 4 != 0)", "step", "Whh"),
    Kind(
        N, "lstm", "dh = back + dr @ W", "dh = back + dr @ W * (1 + (t == 6))", "step 5|step 6", ""
    ),
    Kind(N, "gru", "back = dh * k", "back = dh * (1 - k)", BACK, "carried|gradient"),
    Kind(
        N,
        "rnn",
        "dh = back + dr @ W",
        "dh = (back + dr @ W) * (t != 5)",
        "step 4|step 5",
        "carried|detached|truncat",
    ),
    Kind(N, "rnn", "dh = back + dr @ W", "dh = (back + dr @ W) * 0.98", BACK, "0.98"),
    Kind(
        N,
        "lstm",
        "dh = back + dr @ W",
        "dh = (back + dr @ W).astype(np.float16).astype(x.dtype)",
        BACK,
        "float16",
    ),
    Kind(N, "lstm", "dc = dc + dh * o * (1 - k**2)", "dc = dc + dh * o", BACK, "left out"),
    Kind(N, "lstm", "dc = dc + dh * o", "dc = dc + dh * i", BACK, "reaches c by i"),
    Kind(
        N,
        "lstm",
        "dh = dh + direct[t + 1]",
        "dh = dh + direct[t + 1] * (1 + (t == T - 1))",
        "read-out|backward|from step",
        "twice",
    ),
    Kind(
        N, "lstm peepholes", 'dc + p["Wpi"] * di + p["Wpf"] * df', 'dc + p["Wpi"] * di', BACK, "Wpf"
    ),
    # the sums over the steps
    Kind(
        N,
        "lstm",
        "dW += dr.T @ h[t]",
        "dW += dr.T @ h[t]; dW[3 * H :] += do.T @ (h[t + 1] - h[t])",
        "gate o",
        r"h\[t",
    ),
    Kind(
        N,
        "lstm",
        "db += da.sum(axis=0)",
        "db += da.sum(axis=0); db[H : 2 * H] += df.sum(axis=0)",
        "gate f.*2 times|2 times",
        "",
    ),
    Kind(N, "lstm", "dx[t] = da @ V", "dx[t] = da[:, : 3 * H] @ V[: 3 * H]", "dx", "gate o"),
    Kind(N, "lstm", "dW += dr.T @ h[t]", "dW[:, :4] += (dr.T @ h[t])[:, :4]", "columns 4", ""),
    Kind(
        N,
        "lstm",
        "dW += dr.T @ h[t]",
        "w = np.ones(B); w[0], w[-1] = 2, 0; dW += dr.T @ (h[t] * w[:, None])",
        "dWhh",
        "example 0",
    ),
    Kind(
        N,
        "lstm",
        "grads = {",
        "for n in range(4): np.fill_diagonal(dW[n * H : n * H + H], 0)\n    grads = {",
        "diagonal",
        "",
    ),
    Kind(
        N,
        "lstm",
        "grads = {",
        "dW[[2, 3]] = dW[[3, 2]]\n    grads = {",
        "2 and 3 change places",
        "",
    ),
    Kind(
        N,
        "lstm",
        "dv.sum(axis=0), dv @",
        "dv[1:].sum(axis=0), dv @",
        "dby",
        "first example|example 0",
    ),
    Kind(N, "gru_before", "dn.T @ (r * h[t])", "dn.T @ h[t]", "gate n", "r"),
    Kind(
        N,
        "gru",
        "dr = np.concatenate([dr, dz, dn * r], axis=1)",
        "dr = np.concatenate([dr, dz, dn], axis=1)",
        "gate n|backward",
        "reset",
    ),
    Kind(N, "rnn", "dV += da.T @ x[t]", "dV += da.T @ x[t - 1]", "dWxh", "x"),
    Kind(N, "lstm", "dV += da.T @ x[t]", "dV = da.T @ x[t]", "dWxh", "first step"),
    Kind(N, "lstm", "db += da.sum(axis=0)", "db += da.mean(axis=0)", "dbh", "B|times"),
    Kind(
        N,
        "lstm",
        "db += da.sum(axis=0)",
        "db += da[:-1].sum(axis=0)",
        "dbh",
        "last example|example",
    ),
    Kind(N, "lstm", "dV += da.T @ x[t]", "dV += (da.T @ x[t]) * (t != 3)", "dWxh", "step 3"),
    Kind(
        N,
        "lstm",
        "dW += dr.T @ h[t]",
        "dW += dr.T @ h[t] * (2 if t % 4 == 3 else 1)",
        "dWhh",
        "steps 3, 7|every 4th",
    ),
    Kind(
        N,
        "lstm",
        "dW += dr.T @ h[t]",
        "dW[: 3 * H] += (dr.T @ h[t])[: 3 * H]",
        "gate o",
        "zero|missing",
    ),
    Kind(N, "gru", 'dbhn"] += (dn * r)', 'dbhn"] += dn', "dbhn", "reset"),
    Kind(N, "lstm", "dx[t] = da @ V", "dx[t] = da @ V * (t > 0)", "step 0", ""),
    Kind(N, "lstm", "dx[t] = da @ V", "dx[t - 1] = da @ V", "dx", "shifted|step"),
    Kind(N, "rnn", "dx[t] = da @ V", "dx[t] = dh @ V", "dx", "tanh'|slope"),
    Kind(N, "lstm peepholes", "(do * c[t + 1])", "(do * c[t])", "dWpo", "old cell"),
    Kind(N, "lstm peepholes", "(di * c[t])", "(df * c[t])", "dWpi", "Wpi takes the gate of Wpf"),
    # the forward pass
    Kind(
        N, "lstm", "c[t + 1] = f * c[t] + i * g", "c[t + 1] = f * c[t] + i + g", FORWARD, r"i \+ g"
    ),
    Kind(
        N,
        "lstm peepholes",
        'ao = ao + p["Wpo"] * c[t + 1]\n            o = sigmoid(ao)',
        'pass\n            o = sigmoid(ao) + (p["Wpo"] * c[t + 1] if "Wpo" in p else 0)',
        FORWARD,
        "outside",
    ),
    Kind(
        N,
        "lstm",
        "c[t + 1] = f * c[t] + i * g\n",
        "c[t + 1] = f * c[t] * (t != T // 2) + i * g\n",
        FORWARD,
        "step [67]|reset",  # T // 2
    ),
    Kind(N, "rnn", "z, u = x[t] @ V", "z, u = x[max(t - 1, 0)] @ V", FORWARD, "x"),
    Kind(
        N,
        "rnn",
        "z, u = x[t] @ V.T + bias, h[t] @ W.T",
        "z, u = x[t] @ V.T + bias, h[max(t - 1, 0)] @ W.T",
        FORWARD,
        "h",
    ),
    Kind(
        N,
        "rnn",
        "h[t + 1] = np.tanh(z + u)",
        "a = np.clip(z + u, -3, 3); h[t + 1] = a * (27 + a * a) / (27 + 9 * a * a)",
        FORWARD,
        "tanh",
    ),
    Kind(
        N, "gru", "h[t + 1] = (1 - k) * n + k * h[t]", "h[t + 1] = (1 - k) * n + k * n", FORWARD, ""
    ),
    Kind(N, "gru", "r * s)", "s)", FORWARD, "reset"),
    Kind(
        N,
        "rnn",
        "tape.append(())",
        "tape.append(()); h[4] = h[3] if t == 9 else h[4]",
        BACK + "|" + FORWARD,
        "",
    ),
    Kind(
        N,
        "rnn mask",
        "else T - mask[::-1].argmax(axis=0)",
        "else np.minimum(T - mask[::-1].argmax(axis=0), T - 1)",
        "full length",
        "last step",
    ),
    Kind(N, "gru mask every", "mask.reshape(-1)", "mask.T.reshape(-1)", LOSS, "mask"),
    Kind(
        N,
        "lstm",
        "sigmoid(ai), sigmoid(af), np.tanh(ag)",
        "sigmoid(ai), sigmoid(af + 1), np.tanh(ag)",
        FORWARD,
        "forget",
    ),
    Kind(N, "rnn", "z, u = x[t]", "z, u = x[t].astype(np.float16)", FORWARD, "float16"),
    # the loss
    Kind(N, "rnn", "dv[n, y] -= 1", "dv[n, y] -= 1; dv /= 1.001", LOSS, "times|1.001|temperature"),
    Kind(
        N,
        "rnn",
        'v = rows @ p["Why"].T + p["by"]',
        'v = rows @ p["Why"].T + p["by"]; rows = rows * 1',
        "",
        "",
    ),
    Kind(
        N,
        "rnn",
        "top = v - v.max",
        "y = np.where(n := np.arange(len(y)) == 2, (y + 1) % 4, y); top = v - v.max",
        "example 2|prediction",
        "label|example 2",
    ),
    Kind(
        N,
        "lstm",
        "dv *= weights[:, None]",
        "dv *= (1 + (y == 2))[:, None]; dv *= weights[:, None]",
        "class 2|example",
        "class 2",
    ),
    Kind(
        N,
        "rnn every mask",
        "dv *= weights[:, None] / weights.sum()",
        "dv *= weights[:, None] / len(weights)",
        LOSS,
        "T B|times",
    ),
    Kind(N, "rnn", "dv[n, y] -= 1", "dv[n, y] -= 0.9", LOSS, "label|smooth"),
]
IN_TORCH = [
    Kind(
        T,
        "lstm",
        "loss = F.cross_entropy(v, y)",
        "loss = F.cross_entropy(v / 1.001, y)",
        LOSS,
        "1.001|temperature",
    ),
    Kind(
        T,
        "lstm",
        "F.cross_entropy(v, y)",
        "F.cross_entropy(v, y, weight=torch.tensor([1, 1, 2, 1.]).to(v))",
        LOSS,
        "class 2",
    ),
    Kind(
        T, "rnn", "F.cross_entropy(v, y)", "F.cross_entropy(v, y, ignore_index=0)", LOSS, "class 0"
    ),
    Kind(
        T,
        "gru",
        "F.cross_entropy(v, y)",
        "F.cross_entropy(v, y, label_smoothing=0.03)",
        LOSS,
        "smoothing",
    ),
    Kind(
        T,
        "rnn",
        "F.cross_entropy(v, y)",
        "((1 - torch.exp(-(e := F.cross_entropy(v, y, reduction='none')))) ** 2 * e).mean()",
        LOSS,
        "focal",
    ),
    Kind(
        T,
        "lstm",
        "F.cross_entropy(v, y)",
        "F.cross_entropy(v, y) + 1e-3 * sum((w * w).sum() for w in p.values())",
        LOSS,
        "L2|decay|parameter",
    ),
    Kind(
        T,
        "gru",
        "return loss, v",
        "return loss + 0.01 * (states**2).mean(), v",
        "loss",
        "squared states",
    ),
    Kind(
        T,
        "gru every",
        "kept.sum(), v",
        "kept.sum() + 0.01 * v.square().mean(), v",
        LOSS,
        "squared logits",
    ),
    Kind(
        T,
        "rnn every mask",
        "(each * kept).sum() / kept.sum(), v",
        "((each * kept).reshape(T, B).sum(0) / kept.reshape(T, B).sum(0)).mean(), v",
        LOSS,
        "length|sequence",
    ),
    Kind(
        T,
        "lstm",
        "xt = x[t]",
        "xt = x[t]; h = h.detach() if t % 5 == 0 else h",
        BACK,
        "detach|carried|Whh",
    ),
    Kind(T, "lstm", "xt = x[t]", "xt = x[t]; c = c.detach() if t == 6 else c", "step", "cell|c"),
    Kind(T, "gru", "xt = x[t]", "xt = x[t]; h = h * (t != 6)", FORWARD, "step 6|reset|h"),
    Kind(T, "lstm", "torch.tanh(g)", "torch.tanh(g).detach()", "gate g", "gate g"),
    Kind(T, "lstm", "* torch.tanh(c)", "* c", FORWARD, "without tanh"),
    Kind(T, "lstm", "torch.sigmoid(f) * c +", "torch.sigmoid(f + 0.5) * c +", FORWARD, "gate f"),
    Kind(
        T,
        "lstm",
        'W, V, bias = p["Whh"], p["Wxh"], p["bh"]',
        'W, V, bias = p["Whh"], p["Wxh"], p["bh"].reshape(4, -1)[[1, 0, 2, 3]].reshape(-1)',
        FORWARD,
        "bh|bias",
    ),
    Kind(
        T, "gru", 'r * (u[:, 2 * H :] + p["bhn"])', 'r * u[:, 2 * H :] + p["bhn"]', FORWARD, "bhn"
    ),
    Kind(T, "gru", "(1 - k) * n + k * h", "(1 - k) * h + k * n", FORWARD, "change places|z"),
    Kind(
        T,
        "rnn",
        "h = torch.tanh(z + u)",
        "h = torch.tanh(1.01 * (z + u))",
        FORWARD,
        "argument of tanh.*1.01",
    ),
    Kind(
        T,
        "rnn",
        "h = torch.tanh(z + u)",
        "h = F.dropout(torch.tanh(z + u), 0.0) * 0.9",
        FORWARD,
        "0.9",
    ),
    Kind(T, "rnn", "xt = x[t]", "xt = x[T - 1 - t]", FORWARD, "revers"),
    Kind(T, "rnn", "h @ W.T", "h @ W", FORWARD, "transposed"),
    Kind(T, "lstm", "h @ W.T", "h.to(torch.bfloat16).to(x.dtype) @ W.T", FORWARD, "bfloat16"),
    Kind(
        T, "rnn", "xt = x[t]", "xt = x[max(t - 1, 0)] if t else 0 * x[0]", FORWARD, "x|shift|late"
    ),
    Kind(
        T,
        "rnn mask",
        "states[lengths - 1",
        "states[torch.full((B,), T) - 1",
        "with padding|read-out|forward",
        "mask",
    ),
    Kind(
        T,
        "rnn",
        "h = torch.tanh(z + u)",
        "h = torch.tanh(z + u) + (h if t else 0)",
        FORWARD,
        "residual|h",
    ),
    Kind(
        T,
        "lstm every",
        "c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)",
        "c = torch.sigmoid(f) * c + (1 - torch.sigmoid(f)) * torch.tanh(g)",
        FORWARD,
        "1 - f",
    ),
    Kind(
        T,
        "rnn",
        "zero = {name: value.grad",
        "torch.nn.utils.clip_grad_norm_([*p.values()], 0.05); zero = {name: value.grad",
        "times",
        "times|clipped",
    ),
    Kind(
        T,
        "rnn",
        "zero = {name: value.grad",
        "zero = {name: value.grad + 1e-4 * value.detach()",
        "",
        "parameter|decay",
    ),
    Kind(
        T,
        "rnn every",
        "states = torch.stack(states)",
        "states = torch.stack([0 * states[0], *states[:-1]])",
        FORWARD,
        "earlier|before",
    ),
]
IN_C = [
    Kind(
        C,
        "lstm",
        "dat[i] = triple(ds(in), g, q[i]);",
        "dat[i] = triple(ds(in), g, q[i]) * (i % 4 ? 1 : 1.01);",
        "unit",
        "",
    ),
    Kind(
        C,
        "lstm",
        "for (long j = 0; j < H; ++j) {\n            if (gated)",
        "for (long j = 0; j < H - H % 4; ++j) {\n            if (gated)",
        "column",
        "",
    ),
    Kind(C, "lstm", "q[i] *= keep;", "q[i] *= t % 4 ? keep : 1;", "step|backward", "forget|cell"),
    Kind(
        C,
        "lstm",
        "triple(ds(keep), c[h1 + i], q[i])",
        "triple(ds(keep), c[h1 + S + i], q[i])",
        "gate f",
        r"c\[t",
    ),
    Kind(C, "lstm", "triple(ds(o), kt, e[i])", "triple(ds(in), kt, e[i])", "gate o", "slope"),
    Kind(
        C,
        "gru",
        "dat[H + i] = triple(ds(z), ht[i] - n, e[i]);",
        "dat[H + i] = triple(ds(z), n - ht[i], e[i]);",
        "gate z",
        "sign",
    ),
    Kind(
        C,
        "gru",
        "if (cell == GRU || cell == BEFORE) carry = vt[H + i] * old[i];",
        "carry = 0;",
        BACK,
        "carried",
    ),
    Kind(
        C,
        "rnn",
        "dWxh[i * D + j] = over(da + i, R, x + j, D, T, B);",
        "dWxh[i * D + j] = over(da + i, R, x + j, D, T, B - 1);",
        "dWxh",
        "from 10 on|example",
    ),
    Kind(
        C,
        "rnn",
        "dbh[i] = over(da + i, R, &one, 0, T, B);",
        "dbh[i] = over(da + i, R, &one, 0, T - 1, B);",
        "dbh",
        "last step",
    ),
    Kind(
        C,
        "rnn",
        "dbh[i] = over(da + i, R, &one, 0, T, B);",
        "dbh[i] = i == R - 1 ? 0 : over(da + i, R, &one, 0, T, B);",
        "dbh.*(row|unit|entry)",
        "only the entry",
    ),
    Kind(
        C,
        "lstm",
        "now = c[(t + 1) * S + b * H + i] = vt[H + i] * old",
        "now = c[(t + 1) * S + b * H + i] = vt[H + i] * (t == 5 ? 0 : old)",
        FORWARD,
        "step 5|reset",
    ),
    Kind(
        C,
        "lstm",
        "vt[3 * H + i] = s(at[3 * H + i]);",
        "vt[3 * H + i] = s(at[3 * H + i] + (b == 2 ? 1 : 0));",
        "example 2",
        "",
    ),
    Kind(
        C,
        "rnn",
        "d[i] = counted[n] ? d[i] / (real)divisor : 0;",
        "d[i] = counted[n] ? d[i] / (real)divisor * (n == 1 ? 2 : 1) : 0;",
        "example 1|read-out|outputs",
        "example 1",
    ),
    Kind(
        C,
        "rnn every mask",
        "for (long i = 0; i < H; ++i) direct[t",
        "if (counted[n]) for (long i = 0; i < H - 1; ++i) direct[t",
        BACK,
        "",
    ),
    Kind(
        C,
        "gru_before",
        "for (long n = 0; n < T * B; ++n) u[n * H + j] = v[n * R + j] * h[n * H + j];",
        "for (long n = 0; n < T * B; ++n) u[n * H + j] = h[n * H + j];",
        "gate n",
        "r",
    ),
    Kind(
        C,
        "rnn",
        "dx[(t * B + b) * D + i] = dot(Wxh + i, D, dat, 1, R, 0);",
        "dx[(t * B + b) * D + i] = dot(Wxh + i, D, dat, 1, R - 1, 0);",
        "dx",
        "",
    ),
    Kind(
        C,
        "lstm",
        "dWxh[i * D + j] = over(da + i, R,",
        "dWxh[i * D + j] = over(da + (i < 2 * H ? (i + H) % (2 * H) : i), R,",
        "dWxh.*gates i, f",
        "order f, i, g, o",
    ),
    Kind(
        C,
        "gru",
        "r[2 * H + i] *= vt[i]",
        "r[2 * H + i] *= vt[H + i]",
        "gate n|backward",
        "gate n|reset",
    ),
    Kind(C, "lstm", "dh0[S + b * H + i] = q[i];", "dh0[S + b * H + i] = e[i];", "dh0", ""),
    Kind(C, "rnn", "static real s(real a)", "static real unused(real a)", "", ""),
]
DIFFERENCES = """if not (busy := gradients.__dict__.setdefault("busy", [])):
        busy.append(1)
        for n in np.ndindex(W.shape):
            e = np.zeros_like(W)
            e[n] = 1e-{power}
            up, down = {sides}
            at = ({{**p, "Whh": W + side * e}} for side in (up, down))
            first, second = (gradients(cell, every, q, x, y, mask)["loss"] for q in at)
            dW[n] = (first - second) / (up - down) / e[n]
        busy.clear()
    grads = {{"""
"""The gradient of Whh by differences of the loss."""
IN_ALL = [
    # arrays that share memory
    Kind(
        N,
        "rnn",
        "    dW, dV, db =",
        "    h[:] = h[T]\n    dW, dV, db =",
        BACK,
        "share memory|alias|last",
    ),
    Kind(
        N,
        "lstm",
        "    dW, dV, db =",
        "    tape = [tape[-1]] * T\n    dW, dV, db =",
        BACK,
        "share memory|alias|last",
    ),
    Kind(
        N,
        "lstm",
        "dh = dh + direct[t + 1]",
        "dh = dh + direct[t + 1]; dc = dc if t < T - 1 else dh",
        BACK,
        "dc|cell|memory",
    ),
    Kind(
        N,
        "lstm",
        "    dW, dV, db =",
        "    c[:T] = c[T]\n    dW, dV, db =",
        BACK + "|gate",
        "share memory|alias|last",
    ),
    # finite differences
    Kind(N, "gru", "grads = {", DIFFERENCES.format(power=5, sides=(1, -1)), "dWhh", "difference"),
    Kind(N, "rnn", "grads = {", DIFFERENCES.format(power=3, sides=(1, 0)), "dWhh", "difference"),
    # sums and steps
    Kind(
        N,
        "lstm",
        "dx[t] = da @ V",
        "dx[t] = da @ V + (dx[t + 1] if t + 1 < T else 0)",
        "dx",
        "sum|accumulat|later",
    ),
    Kind(N, "rnn", "dW += dr.T @ h[t]", "dW += (t + 1) * (dr.T @ h[t])", "dWhh", "step"),
    Kind(
        N,
        "rnn",
        "reversed(range(T))",
        "reversed(range(1, T))",
        BACK + "|dx|step 0",
        "first step|step 0",
    ),
    Kind(N, "gru", "dV += da.T @ x[t]", "dV += dr.T @ x[t]", "gate n", "reset"),
    Kind(N, "gru", "db += da.sum(axis=0)", "db += dr.sum(axis=0)", "gate n", "reset"),
    Kind(
        N,
        "rnn every",
        "dv *= weights[:, None]",
        "dv *= (weights * 0.9 ** np.arange(len(weights))[::-1])[:, None]",
        LOSS,
        "step|example|weighted",
    ),
    # another step, another operand
    Kind(N, "lstm", "k = np.tanh(c[t + 1])", "k = np.tanh(c[t])", BACK + "|gate o", r"c\[t\]"),
    Kind(
        N,
        "lstm",
        "dc = dc + dh * o * (",
        "dc = dc + dh * tape[t - 1][3] * (",
        BACK,
        r"o\[t ?- ?1\]|step before|reaches c",
    ),
    Kind(N, "gru", "dz = dh * (h[t] - n)", "dz = dh * (h[t] - np.tanh(s))", "gate z", "gate z"),
    Kind(
        N,
        "lstm",
        "dh = back + dr @ W",
        "dh = back + dr @ W; dh = dh * min(1, 0.02 / np.linalg.norm(dh))",
        BACK,
        "clip",
    ),
    Kind(N, "lstm", "h[t] @ W.T", "(h[t] * (np.arange(H) % 5 > 0)) @ W.T", FORWARD, "unit|dropout"),
    Kind(
        N,
        "lstm mask",
        "else T - mask[::-1].argmax(axis=0)",
        "else np.sort(T - mask[::-1].argmax(axis=0))[::-1]",
        "forward|example|read-out",
        "length|mask|sort",
    ),
    # in PyTorch
    Kind(T, "lstm", "* torch.tanh(c)", "* torch.tanh(c).detach()", BACK, "cell|c"),
    Kind(T, "gru", "+ k * h", "+ k.detach() * h", "gate z", "gate z|z"),
    Kind(T, "lstm", "torch.tanh(g)", "F.softsign(g)", FORWARD, "softsign"),
    Kind(T, "lstm", "torch.sigmoid(f) * c +", "torch.sigmoid(f) ** 2 * c +", FORWARD, "f|square"),
    Kind(
        T,
        "rnn",
        "F.cross_entropy(v, y)",
        "F.nll_loss(F.log_softmax(v, 0), y)",
        "loss",
        "over the examples",
    ),
    Kind(T, "lstm", "F.cross_entropy(v, y)", "F.multi_margin_loss(v, y)", "loss", "margin|hinge"),
    Kind(
        T, "rnn", "h @ W.T", "h @ (W / torch.linalg.matrix_norm(W, 2).detach()).T", FORWARD, "Whh"
    ),
    Kind(
        T,
        "rnn",
        "h = torch.tanh(z + u)",
        "h = h + 0.5 * (torch.tanh(z + u) - h)",
        FORWARD,
        "leaky|old state|0.5",
    ),
    Kind(
        T,
        "gru",
        "h = (1 - k) * n + k * h",
        "h = 0.95 * ((1 - k) * n + k * h) + 0.05 * h",
        FORWARD,
        "leaky|old state|0.05",
    ),
    Kind(T, "lstm", "loss.backward()", "(loss * 1024).backward()", "everywhere|times", "1024"),
    Kind(
        T,
        "rnn every",
        "states = torch.stack(states)",
        "states = F.layer_norm(torch.stack(states), (H,))",
        FORWARD,
        "norm",
    ),
    # in C
    Kind(
        C, "gru", "ht[i] - n, e[i]);", "ht[i ? i - 1 : 0] - n, e[i]);", "gate z", "unit|neighbour"
    ),
]
KINDS = [kind for kind in (*IN_NUMPY, *IN_TORCH, *IN_C, *IN_ALL) if kind.where or kind.name]
