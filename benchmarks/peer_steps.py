"""The same training step by each peer: a recurrent net read out at its last step, or a deep
feedforward net; cross-entropy over 10 classes, SGD.

A peer is made for a problem and has ``gradients() -> (loss, {name: array})`` and ``step()``,
one forward + backward + update of its own parameters; it returns when all is computed.
"""

from dataclasses import replace
from shutil import which
from typing import Any, NamedTuple

import numpy as np

from benchmarks.records import Row
from refnet.batch import Array, Batch, Params
from refnet.check.adapters import jax_nets, torch_nets
from refnet.interop import torch_weights
from refnet.matrices.initializers import gaussian, orthogonal
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net, loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.training.optimizers import SGD

CLASSES = 10
DEPTH = 10
"""Hidden layers of the feedforward net."""
FEEDFORWARD = "feedforward"
RATE = 1e-4


class Problem(NamedTuple):
    """A net, its parameters at the start and a batch."""

    net: Net
    params: Params
    x: Array
    y: Array

    @property
    def kind(self) -> str:
        """The net's cell, or ``FEEDFORWARD``."""
        return self.net.cell if isinstance(self.net, RecurrentNet) else FEEDFORWARD

    def cast(self, dtype: Any) -> "Problem":
        """The same numbers in another float type."""
        params = {name: value.astype(dtype) for name, value in self.params.items()}
        return Problem(self.net, params, self.x.astype(dtype), self.y)


def draw(T: int, D: int, H: int, B: int, cell: str = "rnn") -> Problem:
    """Float32 values in float64 arrays, so that every dtype starts from the same numbers;
    orthogonal recurrent or hidden matrices, so that the gradient does not explode. A feedforward
    net's inputs (B, D) have no T."""
    rng = np.random.default_rng(0)
    flat = cell == FEEDFORWARD
    net: Net = (
        FeedforwardNet((D, *[H] * DEPTH, CLASSES)) if flat else RecurrentNet(D, H, CLASSES, cell)
    )
    params = net.init(rng, np.float64, recurrent=orthogonal, inputs=gaussian)
    return (
        Problem(
            net,
            params,
            rng.standard_normal((B, D) if flat else (T, B, D)),
            rng.integers(0, CLASSES, B),
        )
        .cast(np.float32)
        .cast(np.float64)
    )


def worst_error(gradients: Params, exact: Params, eps: float) -> float:
    """How far the worst entry of the gradients is off, in eps of the largest entry of its array."""
    return max(
        float(abs(gradients[name] - value).max() / (eps * abs(value).max()))
        for name, value in exact.items()
    )


class Refnet:
    """This package, on one of its backends."""

    def __init__(self, problem: Problem, backend: str) -> None:
        self.net = replace(problem.net, backend=backend)
        self.params, self.batch = problem.params, Batch(problem.x, problem.y)
        self.rule = SGD(RATE)
        self.state = self.rule.init(self.params)

    def gradients(self) -> tuple[float, Params]:
        result = loss_and_gradients(self.net, self.params, self.batch, inputs=False)
        return float(result.loss), result.gradients

    def step(self) -> None:
        result = loss_and_gradients(self.net, self.params, self.batch, inputs=False)
        self.params, self.state = self.rule.step(self.params, result.gradients, self.state)


class TorchLayers:
    """torch.nn.Linear and Tanh, and torch.optim.SGD."""

    def __init__(self, problem: Problem) -> None:
        import torch

        self.net = torch_nets.module(problem.net, problem.x.dtype)
        self.names = {
            f"{name}{1 + layer // 2}": getattr(self.net[layer], kind)
            for layer in range(0, len(self.net), 2)
            for name, kind in (("W", "weight"), ("b", "bias"))
        }
        with torch.no_grad():
            for name, value in self.names.items():
                value.copy_(torch.tensor(problem.params[name]))
        self.x, self.y = torch.tensor(problem.x), torch.tensor(problem.y)
        self.rule = torch.optim.SGD(self.names.values(), lr=RATE)
        self.score = torch.nn.functional.cross_entropy

    def outputs(self) -> Any:
        return self.net(self.x)

    def _backward(self) -> Any:
        self.rule.zero_grad()
        loss = self.score(self.outputs(), self.y)
        loss.backward()
        return loss

    def gradients(self) -> tuple[float, Params]:
        loss = float(self._backward().detach())
        return loss, {name: value.grad.numpy() for name, value in self.names.items()}

    def step(self) -> None:
        self._backward()
        self.rule.step()


class Torch(TorchLayers):
    """torch.nn.RNN, LSTM or GRU and torch.optim.SGD. The second bias stays zero; the GRU's is
    trained, and its last third is bhn."""

    def __init__(self, problem: Problem) -> None:
        import torch

        net, params = problem.net, problem.params
        modules = torch_nets.module(net, problem.x.dtype)
        modules.load_state_dict(torch_weights.state_dict(net, params))
        self.rnn, self.read = modules["rnn"], modules["head"]
        self.names = {
            "Whh": self.rnn.weight_hh_l0,
            "Wxh": self.rnn.weight_ih_l0,
            "bh": self.rnn.bias_ih_l0,
            "Why": self.read.weight,
            "by": self.read.bias,
        }
        if net.cell == "gru":
            self.names["bhn"] = self.rnn.bias_hh_l0
        else:
            self.rnn.bias_hh_l0.requires_grad_(False)
        self.x, self.y = torch.tensor(problem.x), torch.tensor(problem.y)
        self.rule = torch.optim.SGD(self.names.values(), lr=RATE)
        self.score = torch.nn.functional.cross_entropy

    def last(self) -> Any:
        """The last state."""
        return self.rnn(self.x)[0][-1]

    def outputs(self) -> Any:
        return self.read(self.last())

    def gradients(self) -> tuple[float, Params]:
        loss, grads = super().gradients()
        if "bhn" in grads:
            grads["bhn"] = grads["bhn"][-self.rnn.hidden_size :]
        return loss, grads


class TorchCompile(Torch):
    """torch.compile of a tanh cell written by hand, run over equal parts of the sequence: the
    longer the part, the faster, but each of its steps is compiled by itself."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        import torch

        T = len(problem.x)
        self.part = max(steps for steps in range(1, 61) if T % steps == 0)

        def run(z: Any, h: Any, Whh: Any) -> Any:
            for at in z.unbind():
                h = torch.tanh(at + h @ Whh.T)
            return h

        self.run = torch.compile(run, fullgraph=True, dynamic=False)

    def last(self) -> Any:
        p = self.names
        z = self.x @ p["Wxh"].T + p["bh"]
        # or the first part would be compiled by itself, for a start without a gradient
        h = z.new_zeros(z.shape[1:], requires_grad=True)
        for part in z.split(self.part):
            h = self.run(part, h, p["Whh"])
        return h


class Jax:
    """jax.jit of the gradient of a lax.scan, or of layer after layer, and of the update."""

    def __init__(self, problem: Problem) -> None:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        self.ready = jax.block_until_ready
        self.params = {name: jnp.asarray(value) for name, value in problem.params.items()}
        self.x, self.y = jnp.asarray(problem.x), jnp.asarray(problem.y)
        outputs = (self.layers if problem.kind == FEEDFORWARD else self.scan)(problem.net)

        def loss(p: Any, x: Any, y: Any) -> Any:
            logits = jax.nn.log_softmax(outputs(p, x))
            return -logits[jnp.arange(len(y)), y].mean()

        def update(p: Any, x: Any, y: Any) -> Any:
            return jax.tree.map(lambda w, g: w - RATE * g, p, jax.grad(loss)(p, x, y))

        self.pull, self.update = jax.jit(jax.value_and_grad(loss)), jax.jit(update)

    @staticmethod
    def scan(net: RecurrentNet) -> Any:
        """The outputs of a recurrent net."""
        import jax

        advance = jax_nets.step(net.cell, net.activation.name, net.hidden)

        def outputs(p: Any, x: Any) -> Any:
            def scanned(carry: Any, z: Any) -> Any:
                return advance(p, carry, z), None

            start = jax.numpy.zeros((x.shape[1], net.hidden), x.dtype)
            carry = (start, start) if net.cell == "lstm" else start
            last, _ = jax.lax.scan(scanned, carry, x @ p["Wxh"].T + p["bh"])
            return (last[0] if net.cell == "lstm" else last) @ p["Why"].T + p["by"]

        return outputs

    @staticmethod
    def layers(net: FeedforwardNet) -> Any:
        """The outputs of a feedforward net."""
        import jax

        def outputs(p: Any, h: Any) -> Any:
            for layer in range(1, net.depth + 1):
                h = jax.numpy.tanh(h @ p[f"W{layer}"].T + p[f"b{layer}"])
            return h @ p[f"W{net.depth + 1}"].T + p[f"b{net.depth + 1}"]

        return outputs

    def gradients(self) -> tuple[float, Params]:
        value, grads = self.pull(self.params, self.x, self.y)
        return float(value), {name: np.asarray(g) for name, g in grads.items()}

    def step(self) -> None:
        self.params = self.ready(self.update(self.params, self.x, self.y))


def contenders(kind: str) -> Row:
    """The peers for problems of a kind, made from one. torch.compile needs a C++ compiler, and its
    gated cells are torch's own."""
    kinds = {
        "compiled": lambda problem: Refnet(problem, "compiled"),
        "torch": TorchLayers if kind == FEEDFORWARD else Torch,
        "jax": Jax,
        "numpy": lambda problem: Refnet(problem, "reference"),
    }
    if kind == "rnn" and which("c++"):
        kinds["torch.compile"] = TorchCompile
    return kinds
