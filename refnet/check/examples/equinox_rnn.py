"""A tanh recurrent net of one layer, read at its last step, in Equinox, for the judge:

    refnet check function mine.py:gradients

It gets p, a dict of NumPy arrays with Whh (H, H), Wxh (H, D), bh (H,), Why (C, H) and by (C,); x
(T, B, D); y (B,), classes; no mask; and returns what it computed by name. If yours computes
another net, options such as --cell and --layers say which.
"""

import equinox as eqx
import jax
import jax.numpy as jnp


class Net(eqx.Module):
    """A recurrent layer, read at the last step, of one sequence."""

    Wxh: jax.Array
    Whh: jax.Array
    bh: jax.Array
    Why: jax.Array
    by: jax.Array

    def __call__(self, x):
        def step(h, at):
            return jnp.tanh(self.Wxh @ at + self.Whh @ h + self.bh), None

        h, _ = jax.lax.scan(step, jnp.zeros_like(self.bh), x)
        return self.Why @ h + self.by


@eqx.filter_jit
@eqx.filter_value_and_grad(has_aux=True)
def derive(net_and_x, y):
    """The mean cross-entropy, the outputs and the gradients in the net and x."""
    net, x = net_and_x
    logits = jax.vmap(net, in_axes=1)(x)
    logs = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logs, y[:, None], axis=1).mean(), logits


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    with jax.enable_x64(x.dtype == "float64"):
        net = Net(**{name: jnp.asarray(value) for name, value in p.items()})
        (loss, outputs), (d, dx) = derive((net, jnp.asarray(x)), jnp.asarray(y))
        return {
            "loss": loss,
            "outputs": outputs,
            "dx": dx,
            **{f"d{name}": getattr(d, name) for name in p},
        }
