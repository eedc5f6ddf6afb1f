"""A tanh recurrent net of one layer, read at its last step, in Flax, for the judge:

    refnet check function mine.py:gradients

It gets p, a dict of NumPy arrays with Whh (H, H), Wxh (H, D), bh (H,), Why (C, H) and by (C,); x
(T, B, D); y (B,), classes; no mask; and returns what it computed by name. If yours computes
another net, options such as --cell and --layers say which.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp


class Net(nn.Module):
    """A recurrent layer, read at the last step."""

    hidden: int
    classes: int

    @nn.compact
    def __call__(self, x):
        cell = nn.SimpleCell(self.hidden, param_dtype=x.dtype, name="cell")
        h = nn.RNN(cell, time_major=True)(x)
        return nn.Dense(self.classes, param_dtype=x.dtype, name="head")(h[-1])


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    with jax.enable_x64(x.dtype == "float64"):
        C, H = p["Why"].shape
        variables = {
            "cell": {"i": {"kernel": p["Wxh"].T, "bias": p["bh"]}, "h": {"kernel": p["Whh"].T}},
            "head": {"kernel": p["Why"].T, "bias": p["by"]},
        }

        def loss_of(variables, x):
            logits = Net(H, C).apply({"params": variables}, x)
            logs = jax.nn.log_softmax(logits)
            return -jnp.take_along_axis(logs, y[:, None], axis=1).mean(), logits

        derive = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)
        (loss, outputs), (d, dx) = jax.jit(derive)(variables, x)
        return {
            "loss": loss,
            "outputs": outputs,
            "dx": dx,
            "dWxh": d["cell"]["i"]["kernel"].T,
            "dbh": d["cell"]["i"]["bias"],
            "dWhh": d["cell"]["h"]["kernel"].T,
            "dWhy": d["head"]["kernel"].T,
            "dby": d["head"]["bias"],
        }
