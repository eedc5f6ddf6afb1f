"""A tanh recurrent net of one layer, read at its last step, as a scan in JAX, for the judge:

    refnet check function mine.py:gradients

It gets p, a dict of NumPy arrays with Whh (H, H), Wxh (H, D), bh (H,), Why (C, H) and by (C,); x
(T, B, D); y (B,), classes; no mask; and returns what it computed by name. If yours computes
another net, options such as --cell and --layers say which.
"""

import jax
import jax.numpy as jnp


def loss_of(p, x, y):
    """The mean cross-entropy, and the outputs."""

    def step(h, at):
        return jnp.tanh(at @ p["Wxh"].T + h @ p["Whh"].T + p["bh"]), None

    h0 = jnp.zeros((x.shape[1], p["bh"].shape[0]), x.dtype)
    h, _ = jax.lax.scan(step, h0, x)
    logits = h @ p["Why"].T + p["by"]
    logs = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logs, y[:, None], axis=1).mean(), logits


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    with jax.enable_x64(x.dtype == "float64"):
        derive = jax.jit(jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True))
        (loss, outputs), (dp, dx) = derive(p, x, y)
        return {
            "loss": loss,
            "outputs": outputs,
            "dx": dx,
            **{f"d{name}": value for name, value in dp.items()},
        }
