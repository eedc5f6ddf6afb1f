"""In what PyTorch adds up the gradients of Whh over the steps: ``python -m benchmarks.step_sums``.

Layers in bfloat16 at the largest sizes of ``refnet check torch``. The same cell is called step by
step, each step with a copy of the weights, and the copies' gradients are added once in float32 and
once in bfloat16, from the last step to the first. results/step_sums.json keeps for every cell and
seed z of each dWhh, and of the layer's as bfloat16, whose sums are in bfloat16 too; and whether the
layer's has the bits of either.
"""

import sys

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.records import Row, save
from refnet.batch import Array, Batch, Params
from refnet.check import survey
from refnet.check.adapters import torch_nets
from refnet.check.arithmetic import arithmetic
from refnet.check.cases import held, random_batch, random_params
from refnet.check.noise import spread
from refnet.check.verdict import compare
from refnet.exact.enclose import certify
from refnet.interop import torch_weights
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.rows import environment

DTYPE = "bfloat16-float32"
CELLS = {"rnn": torch.rnn_tanh_cell, "lstm": torch.lstm_cell, "gru": torch.gru_cell}
SEEDS = 3


def by_steps(net: RecurrentNet, params: Params, batch: Batch) -> list[torch.Tensor]:
    """The gradient of Whh in each step's copy of it."""
    modules = torch_nets.module(net, DTYPE)
    modules.load_state_dict(torch_weights.state_dict(net, params))
    h = torch.zeros(batch.x.shape[1], net.hidden, dtype=torch.bfloat16)
    state = (h, h) if net.cell == "lstm" else h
    copies, states = [], []
    for step in torch.tensor(batch.x).to(torch.bfloat16):
        weights = {
            name: value.detach().clone().requires_grad_()
            for name, value in modules["rnn"].named_parameters()
        }
        copies.append(weights["weight_hh_l0"])
        state = CELLS[net.cell](step, state, *weights.values())
        states.append(state[0] if net.cell == "lstm" else state)
    outputs = modules["head"](torch.stack(states))
    cross_entropy(outputs.reshape(-1, net.outputs), torch.tensor(batch.y).reshape(-1)).backward()
    return [copy.grad for copy in copies]


def added(gradients: list[torch.Tensor], kind: torch.dtype) -> Array:
    """Their sum, from the last to the first, in ``kind``, and rounded to bfloat16."""
    total = torch.zeros_like(gradients[0], dtype=kind)
    for gradient in reversed(gradients):
        total = total + gradient.to(kind)
    rounded: Array = total.to(torch.bfloat16).float().numpy()
    return rounded


def row(cell: str, seed: int) -> Row:
    T, H, B = survey.SIZES[-1]
    net = RecurrentNet(3, H, 5, cell=cell, readout="every")
    rng = np.random.default_rng(seed)
    params, batch = held(
        arithmetic(DTYPE),
        random_params(net, rng, np.float32),
        random_batch(net, rng, np.float32, T, B),
    )
    certified = certify(net, params, batch)
    steps = by_steps(net, params, batch)
    sums = {
        "layer": torch_nets.results(net, params, batch, dtype=DTYPE)["dWhh"],
        "float32": added(steps, torch.float32),
        "bfloat16": added(steps, torch.bfloat16),
    }
    sigmas = {kind: spread(certified, kind) for kind in (DTYPE, "bfloat16")}

    def z(value: Array, kind: str = DTYPE) -> float:
        return compare(
            {"dWhh": value}, certified, dtype=kind, sigma=sigmas[kind], required=()
        ).worst.z

    return {
        "cell": cell,
        "seed": seed,
        "z": {
            "layer as bfloat16": z(sums["layer"], "bfloat16"),
            **{name: z(value) for name, value in sums.items()},
        },
        "same bits": [
            name for name in ("float32", "bfloat16") if (sums[name] == sums["layer"]).all()
        ],
    }


def main() -> int:
    torch.set_num_threads(1)
    rows = [row(cell, seed) for cell in CELLS for seed in range(SEEDS)]
    save(
        "step_sums",
        {
            "environment": environment(),
            "torch": torch.__version__,
            "capability": torch.backends.cpu.get_cpu_capability(),
            "oneDNN has bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported(),
            "rows": rows,
        },
    )
    for line in rows:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
