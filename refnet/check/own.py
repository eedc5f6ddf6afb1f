"""A user's own function, judged: the net that it has to compute, and the verdicts.

Checked by: tests/check/test_function_command.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.cells import CELLS
from refnet.check.arithmetic import arithmetic, stored
from refnet.check.calls import judge
from refnet.check.cases import NORMS, held, random_batch, random_mask, random_params
from refnet.check.survey import Sizes, row
from refnet.check.tolerance import tolerances
from refnet.exact.enclose import Progress
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.losses import LOSSES, REDUCTIONS
from refnet.matrices.transitions import transition
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.training.specs import read_spec

__all__ = ["EXAMPLES", "Described", "example", "own_rows", "tolerance_rows"]

EXAMPLES = ("c", "jax", "numpy", "torch")
SAID: dict[str | float, str] = {
    "": "",
    "large": ", large inputs",
    "zeros": ", a sequence of zeros",
    **{norm: f", transition at 1-norm {norm:g}" for norm in NORMS},
}
"""What a row says of its numbers, by ``at`` of ``Described.arrays``."""
LARGEST = 512.0
"""The largest factor of large inputs: with it exp overflows in float32."""


def example(name: str) -> str:
    """The text of a file whose ``gradients`` is right for a net as described by default."""
    return (Path(__file__).parent / "examples" / f"{name}_rnn.py").read_text(encoding="utf-8")


def _option(default: Any, text: str, *choices: str) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True)
class Described:
    """A recurrent net and what it is given, as the options of the command line say it."""

    cell: str = _option("rnn", "the cell", *CELLS)
    layers: int = _option(1, "stacked layers")
    bidirectional: bool = _option(False, "run every layer in both directions")
    inputs: int = _option(3, "D, the width of x")
    outputs: int = _option(5, "C, classes or targets")
    readout: str = _option(
        "last",
        "the steps whose states Why and by read; with none, the "
        "outputs are the last layer's states",
        *StackedNet.READOUTS,
    )
    loss: str = _option(
        "",
        "the loss (default: cross_entropy; none without a read-out, when y is "
        "the cotangent of the outputs)",
        *LOSSES,
    )
    reduction: str = _option(
        "",
        "how the losses of all predictions combine (default: mean; without a loss: sum)",
        *REDUCTIONS,
    )
    activation: str = _option("tanh", "the activation of the candidate and the state", *ACTIVATIONS)
    gate: str = _option("sigmoid", "the activation of the gates", *ACTIVATIONS)
    transition: str = _option(
        "dense",
        "what Whh is made of, such as cayley or svd:margin=0.1; the "
        "gradient in a part that is constant (base, D) is 0",
    )
    mask: bool = _option(False, "sequences of random lengths: the function also gets mask (T, B)")
    h0: str = _option(
        "zero",
        "the initial state: zero, given for each sequence (B, H), or learned "
        "(H,); for lstm and cifg h and c, (2, B, H) or (2, H)",
        "zero",
        "given",
        "learned",
    )
    biases: int = _option(1, "2 adds a second bias bhh to bh")
    peepholes: bool = _option(False, "peepholes: Wpi, Wpf, Wpo (lstm) or Wpi, Wpo (cifg)")

    @property
    def kinked(self) -> bool:
        """Whether a derivative jumps somewhere."""
        used = {self.activation} | (set() if self.cell == "rnn" else {self.gate})
        return not all(ACTIVATIONS[name].smooth for name in used)

    @property
    def smallest(self) -> int:
        """The smallest H, whose multiples all will do: OPLU and the blocks of a Schur form take
        units in pairs, and one class alone has no gradient."""
        paired = "oplu" in (self.activation, self.gate) or self.transition.startswith("schur")
        classes = self.readout == "none" and self.loss == "cross_entropy" and not self.bidirectional
        return 2 if paired or classes else 1

    def net(self, hidden: int) -> RecurrentNet:
        """The net with H = ``hidden``. Raises ValueError for options that do not go together."""
        alone = self.readout == "none"
        loss = self.loss or ("none" if alone else "cross_entropy")
        name, options = read_spec("transition", self.transition)
        made: dict[str, Any] = {
            "inputs": self.inputs,
            "hidden": hidden,
            "cell": self.cell,
            "readout": self.readout,
            "outputs": (1 + self.bidirectional) * hidden if alone else self.outputs,
            "loss": loss,
            "reduction": self.reduction or ("sum" if loss == "none" else "mean"),
            "activation": self.activation,
            "gate": self.gate,
            "learn_h0": self.h0 == "learned",
            "transition": transition(name, **options),
        }
        if self.peepholes and not CELLS[self.cell].OPTIONAL:
            raise ValueError(f"--peepholes: the cell {self.cell} has none; lstm and cifg have")
        if self.biases not in (1, 2):
            raise ValueError(f"--biases is {self.biases}; need 1 or 2")
        if self.layers == 1 and not self.bidirectional and not alone:
            return RecurrentNet(**made)
        return StackedNet(**made, layers=self.layers, bidirectional=self.bidirectional)

    def arrays(
        self, net: RecurrentNet, judged: Any, T: int, B: int, seed: int, at: str | float = ""
    ) -> tuple[Params, Batch]:
        """Parameters and a batch that hide nothing: no bias is zero. What is judged as an
        arithmetic that NumPy has no type for gets its numbers in float32. ``at``: "large", inputs
        that saturate tanh and gates, times 8, 64, ... up to LARGEST from sequence to sequence (of
        three and more, the largest is in between); "zeros", biases and initial states of zero, and
        one sequence, the middle one, of nothing else, so that all its pre-activations are where
        relu has its kink; a number: the ``norm`` of ``random_params``."""
        kind, dtype = arithmetic(judged), stored(judged)
        rng = np.random.default_rng(seed)
        recurrent = None if net.transition is None else "orthogonal"
        norm = None if isinstance(at, str) else at
        params = random_params(net, rng, dtype, norm=norm, recurrent=recurrent)
        batch = random_batch(net, rng, dtype, T, B)
        wanted = {"bhh"} if self.biases == 2 else set()
        wanted |= {"h0"} if self.h0 == "given" else set()
        wanted |= {*CELLS[self.cell].OPTIONAL} if self.peepholes else set()
        for name, shapes in net.shapes.items():
            if name.split("_l")[0] in wanted:
                shape = tuple(B if size == "B" else int(size) for size in shapes[-1])
                params[name] = rng.uniform(-0.5, 0.5, shape).astype(dtype)
        if at == "large":
            factors = np.minimum(8.0 ** (1 + (np.arange(B) + B // 2) % B), LARGEST)
            batch = batch._replace(x=np.asarray(batch.x * factors[:, None], dtype))
        if at == "zeros":
            params |= {
                name: np.zeros_like(value)
                for name, value in params.items()
                if name.startswith(("bh", "h0"))
            }
            batch.x[:, B // 2] = 0
        params, batch = held(kind, params, batch)
        return params, batch._replace(mask=random_mask(rng, T, B)) if self.mask else batch


def own_rows(
    function: Callable[[Params, Batch], Params],
    described: Described,
    sizes: Sizes,
    dtypes: tuple[Any, ...],
    seed: int = 0,
    required: tuple[str, ...] | None = None,
    progress: Progress | None = None,
    what: str = "function",
    framework: str = "own",
    at: str | float = "",
) -> Iterator[dict[str, Any]]:
    """One row for every size (T, H, B) and type; ``function`` returns arrays by name. ``at``: as
    in ``Described.arrays``."""
    for T, H, B in sizes:
        net = described.net(H)
        for dtype in dtypes:
            params, batch = described.arrays(net, dtype, T, B, seed, at)
            started = perf_counter()
            verdict = judge(
                net, function, params, batch, dtype=dtype, required=required, progress=progress
            )
            package = "" if framework == "own" else framework
            yield row(
                framework,
                package,
                what + SAID[at],
                verdict,
                T=T,
                H=H,
                B=B,
                seconds=perf_counter() - started,
            )


def tolerance_rows(
    described: Described,
    sizes: Sizes,
    dtypes: tuple[Any, ...],
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """The rtol and atol of every quantity, for every size (T, H, B) and type."""
    for T, H, B in sizes:
        net = described.net(H)
        for dtype in dtypes:
            found = tolerances(
                net, *described.arrays(net, dtype, T, B, seed), dtype=dtype, progress=progress
            )
            for name, one in found.items():
                yield {
                    "dtype": str(arithmetic(dtype)),
                    "T": T,
                    "H": H,
                    "B": B,
                    "quantity": name,
                    "rtol": one.rtol,
                    "atol": one.atol,
                }
