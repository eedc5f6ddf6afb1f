"""A user's function, judged: it comes from FILE.py:NAME, with errors that name the user's file and
line; the options of the command line describe the net that it has to compute.

Checked by: tests/check/test_function_command.py, tests/robustness/test_cli.py.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter
from traceback import extract_tb
from typing import Any

import numpy as np

from refnet.batch import Batch, Params
from refnet.cells import CELLS
from refnet.check.arithmetic import Kind, arithmetic, stored
from refnet.check.calls import judge
from refnet.check.cases import (
    NORMS,
    drawn,
    held,
    random_batch,
    random_final,
    random_mask,
    random_params,
)
from refnet.check.given import Foreign
from refnet.check.judgement import NOT_ROUNDING
from refnet.check.repeats import Theirs, of_inputs
from refnet.check.survey import Dtypes, Rows, Sizes, row
from refnet.check.tables import said
from refnet.check.tolerance import tolerances
from refnet.exact.enclose import Progress
from refnet.maths.activations import ACTIVATIONS
from refnet.maths.losses import LOSSES, REDUCTIONS
from refnet.matrices.transitions import transition
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet
from refnet.training.specs import read_spec

__all__ = [
    "Described",
    "arrays_by_name",
    "example",
    "function_rows",
    "loaded",
    "loss_of",
    "tolerance_rows",
]

SAID: dict[str | float, str] = {
    "": "",
    "large": ", large inputs",
    "zeros": ", a sequence of zeros",
    **{norm: f", transition at 1-norm {norm:g}" for norm in NORMS},
}
"""What a row says of its numbers, by ``at`` of ``Described.arrays``."""
SHRINK, SHORT = 5.0, 100
"""The seconds that the smallest sizes of the first wrong row may take, and T H B from which on they
are looked for."""
LARGEST = 512.0
"""The largest factor of large inputs: with it exp overflows in float32."""


def example(name: str) -> str:
    """The text of a file in ``examples`` whose ``gradients`` is right for a net as described by
    default."""
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
    weights: bool = _option(
        False,
        "losses that are multiplied by weights: the function also gets those of the classes (C,) "
        "or, without classes, of the predictions, (B,) or (T, B)",
    )
    final: bool = _option(
        False,
        "cotangents of the states after the last step, too: the function also gets them by the "
        "names and in the shapes of initial states, as final['h0'], (B, H), or for lstm and cifg "
        "(2, B, H) of h and c; state * cotangent, summed, is added to the loss",
    )
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
    projection: int = _option(0, "P < H, the units that an lstm's or cifg's output is projected to")
    clip_step: float = _option(
        0.0, "bound of every entry of the gradient in the pre-activations, at each step"
    )
    clip_forward: float = _option(0.0, "bound of the input of every activation, as ONNX's clip")

    @classmethod
    def of(cls, args: Namespace) -> "Described":
        """What the parsed options of the command line describe."""
        return cls(**{entry.name: getattr(args, entry.name) for entry in fields(cls)})

    @property
    def kinked(self) -> bool:
        """Whether a derivative jumps somewhere."""
        used = {self.activation} | (set() if self.cell == "rnn" else {self.gate})
        return bool(self.clip_step or self.clip_forward) or not all(
            ACTIVATIONS[name].smooth for name in used
        )

    @property
    def smallest(self) -> int:
        """The smallest H, whose multiples all will do: OPLU, complex numbers and the blocks of a
        Schur form take units in pairs, and one class alone has no gradient."""
        paired = any(ACTIVATIONS[name].pairs for name in (self.activation, self.gate))
        paired |= self.transition.startswith(("schur", "urnn", "unitary"))
        classes = self.readout == "none" and self.loss == "cross_entropy" and not self.bidirectional
        return max(2 if paired or classes else 1, 2 * self.projection)

    def net(self, hidden: int) -> RecurrentNet:
        """The net with H = ``hidden``. Raises ValueError for options that do not go together."""
        alone = self.readout == "none"
        name, how = read_spec("transition", self.transition)
        loss = self.loss or ("none" if alone else "cross_entropy")
        same = "inputs cell readout activation gate projection"
        options: dict[str, Any] = {
            **{name: getattr(self, name) for name in same.split()},
            "hidden": hidden,
            "outputs": (1 + self.bidirectional) * hidden if alone else self.outputs,
            "loss": loss,
            "reduction": self.reduction or ("sum" if loss == "none" else "mean"),
            "learn_h0": self.h0 == "learned",
            "clip_step": self.clip_step or None,
            "clip_forward": self.clip_forward or None,
            "transition": transition(name, **how),
        }
        if self.peepholes and not CELLS[self.cell].OPTIONAL:
            raise ValueError(f"--peepholes: the cell {self.cell} has none; lstm and cifg have")
        if self.final and self.mask:
            raise ValueError(
                "--final: need sequences of one length, without --mask; --readout last reads the "
                "state at each sequence's own last step"
            )
        if self.biases not in (1, 2):
            raise ValueError(f"--biases is {self.biases}; need 1 or 2")
        if self.layers == 1 and not self.bidirectional and not alone:
            return RecurrentNet(**options)
        return StackedNet(**options, layers=self.layers, bidirectional=self.bidirectional)

    def arrays(
        self, net: RecurrentNet, judged: Kind, T: int, B: int, seed: int, at: str | float = ""
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
                params[name] = drawn(shapes[-1], B, rng, dtype)
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
        if self.final:
            batch = batch._replace(final=random_final(net, rng, dtype, B))
        params, batch = held(kind, params, batch)
        if self.mask:
            batch = batch._replace(mask=random_mask(rng, T, B))
        if not self.weights:
            return params, batch
        classes, lead = net.loss == "cross_entropy", (T, B)[net.readout == "last" :]
        each = np.asarray(rng.integers(2, 9, net.outputs if classes else lead) / 4, dtype)
        return params, batch._replace(weights=each[batch.y] if classes else each)


def function_rows(
    function: Callable[[Params, Batch], Params],
    described: Described,
    inputs: Iterable[tuple[tuple[int, int, int], str | float]],
    dtypes: Dtypes,
    seed: int = 0,
    labels: tuple[str, str] = ("own", "function"),
    **options: Any,
) -> Rows:
    """One row for all inputs and types; ``function`` returns arrays by name. ``inputs``: sizes
    (T, H, B), and ``at`` as of ``Described.arrays``; ``labels``: the framework, and what is judged;
    ``options``: of ``judge``."""
    framework, what = labels
    shrink = SHRINK
    for (T, H, B), at in inputs:
        net = described.net(H)
        for dtype in dtypes:
            params, batch = described.arrays(net, dtype, T, B, seed, at)
            theirs = partial(_of_the_cell, of_inputs(function), described.cell, H)
            if described.weights and net.loss == "cross_entropy":
                theirs = partial(_of_classes, theirs, net.outputs)
            started = perf_counter()
            seconds = shrink * (T * H * B > SHORT)
            verdict = judge(net, theirs, params, batch, dtype=dtype, shrink=seconds, **options)
            shrink *= verdict.verdict != NOT_ROUNDING or not seconds
            package, spent = framework.replace("own", ""), perf_counter() - started
            facts = {"inputs": SAID[at][2:], "T": T, "H": H, "B": B, "seconds": spent}
            line = row(framework, package, what + SAID[at], verdict.dtype, **facts)
            yield {**line, **said(verdict)}


def _of_the_cell(function: Theirs, cell: str, H: int, params: Params, batch: Batch) -> Foreign:
    """What a function gives; ValueError if its gradients have the rows of a cell with more or fewer
    gates."""
    arrays = function(params, batch)
    for name in (name for name in params if name.startswith("Whh") and "." not in name):
        theirs = arrays.get(f"d{name}", arrays.get(name))
        rows = len(theirs) if isinstance(theirs, np.ndarray) and theirs.ndim else 0
        others = [other for other, its in CELLS.items() if len(its.GATES) * H == rows]
        if others and rows != len(params[name]):
            raise ValueError(
                f"d{name} has {rows} = {rows // H} H rows, as with --cell {' or '.join(others)}; "
                f"with --cell {cell} it has {len(params[name])}"
            )
    return arrays


def _of_classes(function: Theirs, C: int, params: Params, batch: Batch) -> Foreign:
    """What a function gives that takes a weight for each class, 1 for one that no label has."""
    assert batch.weights is not None
    weights = np.ones(C, batch.weights.dtype)
    weights[batch.y] = batch.weights
    return function(params, batch._replace(weights=weights))


def tolerance_rows(
    described: Described, sizes: Sizes, dtypes: Dtypes, seed: int, progress: Progress
) -> Rows:
    """The rtol and atol of every quantity, for every size (T, H, B) and type."""
    for T, H, B in sizes:
        net = described.net(H)
        for dtype in dtypes:
            case = described.arrays(net, dtype, T, B, seed)
            for name, tolerance in tolerances(net, *case, dtype=dtype, progress=progress).items():
                facts = {"dtype": str(arithmetic(dtype)), "T": T, "H": H, "B": B}
                yield {**facts, "quantity": name, **tolerance._asdict()}


def loaded(place: str, checked: Callable[[Foreign], Foreign]) -> Callable[..., Foreign]:
    """The function NAME of FILE.py, which runs as a script would: beside its own modules.

    ``checked`` converts what the function returns, and raises ValueError for what it cannot use.
    Raises ValueError for a place that holds no function, and for an error inside the file or the
    function, with its type, file and line.
    """
    path, _, name = place.rpartition(":")
    if not path or not name or not Path(path).is_file():
        raise ValueError(
            f"{place}: need FILE.py:NAME, such as mine.py:gradients, with a file that exists"
        )
    spec = spec_from_file_location(f"user_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{place}: {path} is not a Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _explained(place, path, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        functions = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == spec.name
        ]
        raise ValueError(
            f"{place}: {path} has no function {name}; it has {', '.join(functions) or 'none'}"
        )

    @wraps(function)
    def call(*arguments: Foreign) -> Foreign:
        try:
            result = function(*arguments)
        except (Exception, SystemExit) as error:
            raise _explained(place, path, error, *arguments[:1]) from error
        try:
            return checked(result)
        except ValueError as error:
            raise ValueError(f"{place} returned {error}") from None

    return call


def loss_of(result: Foreign) -> Foreign:
    """A framework's loss: a tensor of shape ()."""
    shape = getattr(result, "shape", None)
    if shape is None or len(shape):
        arrived = type(result).__name__ if shape is None else f"shape {tuple(shape)}"
        raise ValueError(f"{arrived}; need the loss as a tensor of shape ()")
    return result


def arrays_by_name(result: Foreign) -> dict[str, Foreign]:
    """A dict of arrays, or of what NumPy makes arrays of: tensors come from their device."""
    if not isinstance(result, Mapping):
        raise ValueError(
            f"{type(result).__name__}; need a dict of arrays by name: loss, outputs, "
            "dWhh, dx and so on"
        )
    return {str(name): _array(str(name), value) for name, value in result.items()}


def _array(name: str, value: Foreign) -> Foreign:
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
        return np.asanyarray(value) if hasattr(value, "__array__") else value
    except Exception as error:  # frameworks have no common one
        raise ValueError(
            f"{name} as {type(value).__name__}, which NumPy cannot read: {_said(error)}"
        ) from None


def _explained(place: str, path: str, error: BaseException, params: object = None) -> ValueError:
    """The error, in one line, at the last line of the user's file that it came through, with the
    names and shapes of ``params``, its first argument, unless it is about a name that they have."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename or path}:{error.lineno or 1}"
    else:
        lines = [
            frame
            for frame in extract_tb(error.__traceback__)
            if Path(frame.filename).resolve() == Path(path).resolve()
        ]
        where = f"{path}:{lines[-1].lineno}: {lines[-1].line}" if lines else path
        if not lines and isinstance(error, TypeError):  # the call itself
            where += (
                "; it gets p, x, y, then what --mask, --weights and --final add, or p and batch"
            )
    if isinstance(params, Mapping) and not any(str(name) in params for name in error.args):
        shapes = (f"{name} {tuple(np.shape(value))}" for name, value in params.items())
        where += f"; p has {', '.join(shapes)}, as --cell and other options say"
    return ValueError(f"{place}: {type(error).__name__}: {_said(error)} (at {where})")


def _said(error: BaseException) -> str:
    """An error's text in one line."""
    said = " ".join(str(error).split())
    return said if len(said) <= 300 else said[:297] + "..."
