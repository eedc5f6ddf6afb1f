"""The same training step by each peer: a tanh net read out at its last step, cross-entropy over
10 classes, SGD.

A peer is made for a problem and has ``gradients() -> (loss, {name: array})`` and ``step()``,
one forward + backward + update of its own parameters; it returns when all is computed.
"""

from typing import Any, NamedTuple

import numpy as np

from refnet.batch import Array, Batch, Params
from refnet.gradients import loss_and_gradients
from refnet.nets import RecurrentNet
from refnet.optimizers import SGD

CLASSES = 10
RATE = 1e-4


class Problem(NamedTuple):
    """A net's parameters at the start and a batch."""

    params: Params
    x: Array
    y: Array

    def cast(self, dtype: Any) -> "Problem":
        """The same numbers in another float type."""
        return Problem({name: value.astype(dtype) for name, value in self.params.items()},
                       self.x.astype(dtype), self.y)


def draw(T: int, D: int, H: int, B: int) -> Problem:
    """Float32 values in float64 arrays, so that every dtype starts from the same numbers; an
    orthogonal Whh, so that the gradient neither vanishes nor explodes."""
    rng = np.random.default_rng(0)
    params = {"Whh": np.linalg.qr(rng.standard_normal((H, H)))[0],
              "Wxh": rng.standard_normal((H, D)) / 10, "bh": np.zeros(H),
              "Why": rng.standard_normal((CLASSES, H)) / H ** 0.5, "by": np.zeros(CLASSES)}
    return Problem(params, rng.standard_normal((T, B, D)),
                   rng.integers(0, CLASSES, B)).cast(np.float32).cast(np.float64)


class Refnet:
    """This package, on one of its backends."""

    def __init__(self, problem: Problem, backend: str) -> None:
        H, D = problem.params["Wxh"].shape
        self.net = RecurrentNet(D, H, CLASSES, backend=backend)
        self.params, self.batch = problem.params, Batch(problem.x, problem.y)
        self.rule = SGD(RATE)
        self.state = self.rule.init(self.params)

    def gradients(self) -> tuple[float, Params]:
        result = loss_and_gradients(self.net, self.params, self.batch, inputs=False)
        return float(result.loss), result.gradients

    def step(self) -> None:
        result = loss_and_gradients(self.net, self.params, self.batch, inputs=False)
        self.params, self.state = self.rule.step(self.params, result.gradients, self.state)


class Torch:
    """torch.nn.RNN, its second bias zero and fixed, and torch.optim.SGD."""

    def __init__(self, problem: Problem) -> None:
        import torch
        H, D = problem.params["Wxh"].shape
        self.rnn = torch.nn.RNN(D, H)
        self.read = torch.nn.Linear(H, CLASSES)
        self.names = {"Whh": self.rnn.weight_hh_l0, "Wxh": self.rnn.weight_ih_l0,
                      "bh": self.rnn.bias_ih_l0, "Why": self.read.weight, "by": self.read.bias}
        for name, parameter in self.names.items():
            parameter.data = torch.tensor(problem.params[name])
        self.rnn.bias_hh_l0 = torch.nn.Parameter(torch.zeros_like(self.rnn.bias_ih_l0), False)
        self.x, self.y = torch.tensor(problem.x), torch.tensor(problem.y)
        self.rule = torch.optim.SGD(self.names.values(), lr=RATE)
        self.score = torch.nn.functional.cross_entropy

    def _backward(self) -> Any:
        self.rule.zero_grad()
        loss = self.score(self.read(self.rnn(self.x)[0][-1]), self.y)
        loss.backward()
        return loss

    def gradients(self) -> tuple[float, Params]:
        loss = float(self._backward().detach())
        return loss, {name: value.grad.numpy() for name, value in self.names.items()}

    def step(self) -> None:
        self._backward()
        self.rule.step()


class Jax:
    """jax.jit of the gradient of a lax.scan and of the update."""

    def __init__(self, problem: Problem) -> None:
        import jax
        import jax.numpy as jnp
        jax.config.update("jax_enable_x64", True)
        self.ready = jax.block_until_ready
        self.params = {name: jnp.asarray(value) for name, value in problem.params.items()}
        self.x, self.y = jnp.asarray(problem.x), jnp.asarray(problem.y)

        def loss(p: Any, x: Any, y: Any) -> Any:
            def one(h: Any, v: Any) -> Any:
                return jnp.tanh(v + h @ p["Whh"].T), None

            start = jnp.zeros((x.shape[1], p["Whh"].shape[0]), x.dtype)
            h, _ = jax.lax.scan(one, start, x @ p["Wxh"].T + p["bh"])
            logits = jax.nn.log_softmax(h @ p["Why"].T + p["by"])
            return -logits[jnp.arange(len(y)), y].mean()

        def update(p: Any, x: Any, y: Any) -> Any:
            return jax.tree.map(lambda w, g: w - RATE * g, p, jax.grad(loss)(p, x, y))

        self.pull, self.update = jax.jit(jax.value_and_grad(loss)), jax.jit(update)

    def gradients(self) -> tuple[float, Params]:
        value, grads = self.pull(self.params, self.x, self.y)
        return float(value), {name: np.asarray(g) for name, g in grads.items()}

    def step(self) -> None:
        self.params = self.ready(self.update(self.params, self.x, self.y))


PEERS = {"compiled": lambda problem: Refnet(problem, "compiled"), "torch": Torch, "jax": Jax,
         "numpy": lambda problem: Refnet(problem, "reference")}
