"""Haiku's VanillaRNN, which has relu, LSTM and GRU, which resets before the product. Its LSTM adds
1 to the forget gate, and z of its GRU is refnet's 1 - z: the weights given to it undo both."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np


def weights_of(p):
    """The weights by Haiku's names."""
    H = p["Whh"].shape[1]
    gates = len(p["Whh"]) // H
    bh, Wxh, Whh = (jnp.split(p[name], gates) for name in ("bh", "Wxh", "Whh"))
    if gates == 1:
        zero = {"w": p["Whh"].T, "b": jnp.zeros(H, p["bh"].dtype)}
        return {"vanilla_rnn/linear": {"w": p["Wxh"].T, "b": p["bh"]}, "vanilla_rnn/linear_1": zero}
    if gates == 4:
        order = (0, 2, 1, 3)  # i, g, f, o
        both = jnp.concatenate([jnp.hstack([Wxh[n], Whh[n]]) for n in order]).T
        bias = jnp.concatenate([bh[n] - (n == 1) for n in order])
        return {"lstm/linear": {"w": both, "b": bias}}
    order, signs = (1, 0, 2), (-1, 1, 1)  # z, r, n
    parts = [
        jnp.concatenate([sign * part[n] for n, sign in zip(order, signs)])
        for part in (Wxh, Whh, bh)
    ]
    return {"gru": {"w_i": parts[0].T, "w_h": parts[1].T, "b": parts[2]}}


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    H, B = p["Whh"].shape[1], x.shape[1]
    kind = {1: hk.VanillaRNN, 3: hk.GRU, 4: hk.LSTM}[len(p["Whh"]) // H]

    @hk.without_apply_rng
    @hk.transform
    def layer(x):
        core = kind(H)
        start = jax.tree.map(lambda part: part.astype(x.dtype), core.initial_state(B))
        return hk.dynamic_unroll(core, x, start)[0]

    def loss_of(p, x):
        h = layer.apply(weights_of(p), x)
        outputs = (h if y.ndim == 2 else h[-1]) @ p["Why"].T + p["by"]
        logs = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(logs, jnp.asarray(y)[..., None], axis=-1).mean(), outputs

    with jax.enable_x64(x.dtype == np.float64):
        derive = jax.jit(jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True))
        (loss, outputs), (dp, dx) = derive(p, x)
        return {
            "loss": loss,
            "outputs": outputs,
            "dx": dx,
            **{f"d{name}": value for name, value in dp.items()},
        }
