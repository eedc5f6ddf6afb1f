"""The commands ``refnet check`` and ``refnet vectors``: their arguments and help.

Checked by: tests/robustness/test_cli.py, tests/check/test_function_command.py.
"""

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

from refnet.check import commands
from refnet.check.tables import size, sizes, target
from refnet.runs.files import named

__all__ = ["add_commands"]

Subparsers: TypeAlias = "argparse._SubParsersAction[Any]"

TORCH = """
  refnet check torch
      judge the installed torch.nn.RNN, LSTM, GRU (of 1 to 3 layers, in one direction and both,
      batch-first, packed, projected, with and without biases), Linear stacks and orthogonal
      parametrisations, in float32 and float64
  refnet check torch --dtypes tf32 bfloat16-float32 --sizes 4,3,2
      in other arithmetics; with --device cuda on a GPU, where PyTorch's recurrent layers multiply
      in TF32 unless that is switched off
  refnet check torch --function mine.py:loss --cell lstm --sizes 40,16,4
      judge a loss of your own: loss(p, x, y) takes tensors, p["Whh"], p["Wxh"], p["bh"],
      p["Why"], p["by"] and so on, and returns the mean cross-entropy, which PyTorch
      differentiates
"""

JAX = """
  refnet check jax
      judge recurrent nets written with lax.scan, and the layers of Flax and Equinox, whichever
      is installed

--function mine.py:loss judges a loss of your own: loss(p, x, y) takes JAX arrays, p["Whh"],
p["Wxh"], p["bh"], p["Why"], p["by"] and so on, and returns the mean cross-entropy, which JAX
differentiates.
"""

OWN = """
  refnet check function mine.py:gradients
      judge gradients that your own code computes, in NumPy, C or anything else
"""

ONNX = """
  refnet check onnx model.onnx
      judge a whole model, run by both ONNX runtimes, by its operators' definition
  refnet check onnx model.onnx --as gru
      judge it by what was meant: a converter's wrong linear_before_reset is caught
"""

SIGMAS = """
The judge measures a difference in sigmas of rounding: up to 6 it is explained by rounding, above 12
it is not. The verdict names the mistake that explains the difference, if one does. Beneath a row
that is not explained, lines say where it is wrong: which results are right, and in which gate,
unit, step or example the others are not, there and at the fewest steps at which it shows.
"""

FUNCTION = """examples:
  refnet check function --example numpy > mine.py
  refnet check function mine.py:gradients --sizes 1,4,1 50,32,4 --junit report.xml
      a file that runs, a tanh net of one layer without a mask; change it into your own code
  refnet check function lstm.py:gradients --cell lstm --layers 2 --bidirectional --mask
      a function that computes another net, which the options describe

Your function receives NumPy arrays and returns a dict of arrays (or of tensors) by name:

  def gradients(p, x, y):            # with options: p, x, y, mask, weights, final
      ...
      return {"loss": loss, "dWhh": dWhh, "dWxh": dWxh, "dbh": dbh, "dWhy": dWhy, "dby": dby}

p is a dict: Whh (G H, H), Wxh (G H, D), bh (G H,) with the G gates of a cell stacked in the
order i, f, g, o (lstm), i, g, o (cifg), or r, z, n (gru_before and gru). gru also has bhn (H,),
which it adds to Whh h in n. With several layers, both directions or --readout none the names are
Whh_l0, Whh_l0_reverse, Whh_l1, ... The read-out is Why (C, H) and by (C,). Options add h0 (--h0),
Wpi, Wpf and Wpo (H,) (--peepholes), and bhh (--biases 2), which the net adds to bh: (G H,), or
(2 H,) for r and z of the gru. x is (T, B, D); y has classes (B,) or (T, B), or targets; mask is
bool (T, B) (--mask). --readout none has cotangents of the outputs in y, and --final those of the
states after the last step: dh, dc = final["h0"] of an lstm.

The dict must have d + name for every parameter (or the names after --required), and may have loss,
outputs, h (T + 1, B, H), c and dx: the judge judges everything in it. At the masked steps after the
end of a sequence the states run on, but of several layers, of both directions and with --readout
none what a layer hands on is 0 there (leave outputs out if yours is not). The states of these are
h_l0, c_l0, h_l0_reverse, ...
"""

TOLERANCES = """example:
  refnet check tolerances --cell lstm --sizes 50,32,4
      for np.testing.assert_allclose(theirs, exact, rtol, atol) in your own test; double them
      if both sides are in the same type (refnet.check.tolerances has the formula)
"""

STATUS = """
exit status: 0 if rounding explains everything (except what a framework refuses to compute), 1 if
not, 2 if nothing could be judged or after an error
"""

READ = """
exit status: 0 if rounding explains everything, 1 if not or if a result is missing or cannot be
read, 2 if nothing could be judged or after an error
"""

PLAIN = """
exit status: 0 after success, 2 after an error
"""

VARIED = (
    "20,16,4 7,6,1 1,2,1 3,1,2 5,19,9, with H + 1 where H must be even, and 20,16,4 with "
    "large inputs and, if a derivative jumps, with zeros; a transition's function also at "
    "3,4,2, with its parts at several 1-norms"
)

VECTORS = """example:
  refnet vectors write golden
  ./my_program golden results        (any language: golden/manifest.json says how)
  refnet vectors judge golden results
"""


EXAMPLES = sorted(path.stem[:-4] for path in Path(__file__).parent.glob("examples/*_rnn.py"))
"""What a judged function may be written with, as a file NAME_rnn.py shows."""


def add_commands(subparsers: Subparsers) -> None:
    """Add ``check`` and ``vectors``; each sets ``run``, a function of the parsed arguments
    that returns the exit status: 0 if all is explained by rounding, 1 if not."""
    check = _parser(
        subparsers,
        "check",
        "judge other frameworks by certified gradients",
        f"examples:{TORCH}{OWN[1:]}{ONNX[1:]}{SIGMAS}",
    )
    judges = check.add_subparsers(dest="judge", metavar="WHAT", required=True)
    _add_framework(judges, "torch", "PyTorch", TORCH)
    _add_framework(judges, "jax", "JAX", JAX)
    _add_function(judges)
    parser = _parser(
        judges,
        "tolerances",
        "print the rtol and atol that rounding warrants for each quantity",
        TOLERANCES,
        PLAIN,
    )
    _describing(parser, "20,16,4")
    _common(parser, commands.list_tolerances, verdicts=False)
    _add_onnx(judges)
    keras = _parser(judges, "keras", "judge Keras's recurrent layers, on JAX", SIGMAS)
    _common(keras, commands.judge_keras)
    _add_vectors(subparsers)


def _add_framework(judges: Subparsers, name: str, text: str, examples: str) -> None:
    parser = _parser(
        judges,
        name,
        f"judge {text}'s layers, or a function written for it",
        f"examples:{examples}{SIGMAS}",
    )
    parser.add_argument(
        "--function",
        metavar="FILE.py:NAME",
        help="judge this loss(p, x, y), or "
        "loss(p, x, y, mask), instead of the framework's own layers",
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="where the framework computes, such as "
        "cuda (torch), gpu (jax) or cpu (default: the framework's own choice)",
    )
    _describing(
        parser,
        f"of its cells 1,4,1 50,32,4 200,32,8, of its other layers 6,4,3; with --function {VARIED}",
    )
    _with_special_inputs(parser)
    _common(parser, commands.judge_framework)


def _add_function(judges: Subparsers) -> None:
    parser = _parser(judges, "function", "judge gradients that your own code computes", FUNCTION)
    parser.add_argument("function", nargs="?", metavar="FILE.py:NAME", help="the function to judge")
    parser.add_argument(
        "--example",
        choices=EXAMPLES,
        metavar="NAME",
        help="print a file with a correct function named gradients, to start from: "
        + ", ".join(EXAMPLES),
    )
    parser.add_argument(
        "--required",
        metavar="NAMES",
        help="what the function must return, such "
        "as outputs,dx (default: the gradient of every parameter)",
    )
    _describing(parser, VARIED)
    _with_special_inputs(parser)
    _common(parser, commands.judge_function)


def _add_onnx(judges: Subparsers) -> None:
    parser = _parser(
        judges, "onnx", "judge ONNX runtimes, or a whole model", f"example:{ONNX}{SIGMAS}"
    )
    parser.add_argument(
        "model",
        nargs="?",
        type=named,
        metavar="MODEL.onnx",
        help="a model of RNN, LSTM, GRU and the operators around them, as torch.onnx.export writes "
        "it (default: models of every kind, written here)",
    )
    parser.add_argument(
        "--as",
        dest="intended",
        metavar="NET",
        help="judge the model by what its author meant: a cell (rnn, lstm, cifg, gru, which resets "
        "after the product, or gru_before), or a file whose weights it should have: .safetensors, "
        ".pt, .keras, .npz (default: by its operators' definition)",
    )
    parser.add_argument(
        "--steps",
        type=size,
        default=20,
        metavar="T",
        help="steps of the sequences that a model is run on (default: 20)",
    )
    parser.add_argument(
        "--batch", type=size, default=4, metavar="B", help="how many sequences (default: 4)"
    )
    _common(parser, commands.judge_onnx)


def _add_vectors(subparsers: Subparsers) -> None:
    vectors = _parser(
        subparsers, "vectors", "write and judge golden vectors for any language", VECTORS, READ
    )
    actions = vectors.add_subparsers(dest="action", metavar="ACTION", required=True)
    write = _parser(actions, "write", "write the catalogue with its manifest", VECTORS, PLAIN)
    write.add_argument(
        "folder",
        type=named,
        metavar="DIR",
        help="the folder to write to; created if it does not exist",
    )
    write.set_defaults(run=commands.write_vectors)
    judge = _parser(actions, "judge", "judge the results that a program wrote", VECTORS, READ)
    judge.add_argument(
        "folder", type=named, metavar="DIR", help="the folder that `vectors write` wrote"
    )
    judge.add_argument(
        "theirs",
        type=named,
        metavar="THEIRS",
        help="a folder with NAME.json, NAME.npz or NAME.safetensors for every case that was run",
    )
    judge.add_argument(
        "--skip-missing",
        action="store_true",
        help="leave out the cases that the program did not run",
    )
    _files(judge)
    judge.set_defaults(run=commands.judge_vectors)


def _parser(
    subparsers: Subparsers, name: str, text: str, examples: str, status: str = STATUS
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=examples + status,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _common(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int], verdicts: bool = True
) -> None:
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the random parameters and inputs (default: 0)",
    )
    _files(parser, verdicts)
    if verdicts:
        parser.add_argument(
            "--allow-suspicious",
            action="store_true",
            help="fail only on *not rounding*, not on suspicious",
        )
    parser.set_defaults(run=run)


def _files(parser: argparse.ArgumentParser, verdicts: bool = True) -> None:
    """The files that a table may go to."""
    parser.add_argument(
        "--json",
        type=target,
        metavar="FILE",
        help="also write the rows to this file, with every quantity",
    )
    if verdicts:
        parser.add_argument(
            "--junit",
            type=target,
            metavar="FILE",
            help="also write the verdicts as JUnit XML, for continuous integration",
        )


def _with_special_inputs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--large",
        dest="at",
        action="store_const",
        const="large",
        default="",
        help="judge a function only with large inputs, which saturate tanh and gates and "
        "overflow exp; some mistakes show only there "
        "(default: besides the usual inputs, unless --sizes is given)",
    )
    group.add_argument(
        "--zeros",
        dest="at",
        action="store_const",
        const="zeros",
        help="judge a function only with a sequence of zeros and with zero biases and initial "
        "states: there relu has its kink, where the reference takes the derivative from the "
        "left, 0 (default: as for --large, if a derivative jumps)",
    )


def _describing(parser: argparse.ArgumentParser, default: str) -> None:
    """The options that say which net a function computes, and the sizes to run it at."""
    from refnet.check.arithmetic import NAMED
    from refnet.check.userfunction import Described

    net = parser.add_argument_group("the net that a function computes")
    for entry in fields(Described):
        flag, text = f"--{entry.name.replace('_', '-')}", entry.metadata["help"]
        if entry.type is bool:
            net.add_argument(flag, action="store_true", help=text)
            continue
        choices = entry.metadata["choices"]
        if choices and entry.name != "h0":
            text += f": {', '.join(choices)}"
        if entry.default:
            text += f" (default: {entry.default})"
        kinds: dict[Any, Callable[[str], Any]] = {int: size, float: float}
        kind = kinds.get(entry.type, str)
        net.add_argument(
            flag,
            type=kind,
            default=entry.default,
            choices=choices or None,
            metavar="NAME" if kind is str else "N",
            help=text,
        )
    net.add_argument(
        "--sizes",
        type=sizes,
        nargs="+",
        metavar="T,H,B",
        help=f"steps, hidden units and sequences, once or more (default: {default})",
    )
    net.add_argument(
        "--dtypes",
        nargs="+",
        default=("float32", "float64"),
        metavar="NAME",
        choices=("float16", "float32", "float64", *NAMED),
        help="the type that it computes in: "
        f"float16, float32, float64, or {', '.join(NAMED)}; for these it receives its "
        "numbers as float32 (default: float32 float64)",
    )
