"""``refnet check`` and ``refnet vectors``: the only part of the judge that prints."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refnet.check.loader import arrays_by_name, loaded, one_number
from refnet.check.tables import cell, junit, save, show, size, sizes, target

if TYPE_CHECKING:
    from refnet.batch import Batch, Params
    from refnet.check.survey import Dtypes, Sizes

__all__ = ["add_commands"]

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
      p["Why"], p["by"] and so on, and returns the mean cross-entropy, which PyTorch derives
"""

JAX = """
  refnet check jax
      judge recurrent nets written with lax.scan, and the layers of Flax and Equinox, whichever
      is installed

With --function mine.py:loss a loss of your own is judged: loss(p, x, y) takes JAX arrays, p["Whh"],
p["Wxh"], p["bh"], p["Why"], p["by"] and so on, and returns the mean cross-entropy, which JAX
derives.
"""

OWN = """
  refnet check function mine.py:gradients
      judge gradients that your own code computes, in NumPy, C or anything else
"""

ONNX = """
  refnet check onnx model.onnx
      judge the forward pass of a model's RNN, LSTM or GRU by both ONNX runtimes
"""

SIGMAS = """
A difference is measured in sigmas of rounding: up to 6 it is explained by rounding, above
12 it is not, and the convention that would explain it is named if there is one.
"""

FUNCTION = """examples:
  refnet check function --example numpy > mine.py
  refnet check function mine.py:gradients --sizes 1,4,1 50,32,4 --junit report.xml
      a file that runs, a tanh net of one layer without a mask, to be changed into your own;
      there are numpy, torch, jax and c
  refnet check function lstm.py:gradients --cell lstm --layers 2 --bidirectional --mask
      a function that computes another net, which the options describe

Your function gets NumPy arrays and returns a dict of arrays (or of tensors) by name:

  def gradients(p, x, y):            # with --mask: p, x, y, mask
      ...
      return {"loss": loss, "dWhh": dWhh, "dWxh": dWxh, "dbh": dbh, "dWhy": dWhy, "dby": dby}

p is a dict: Whh (G H, H), Wxh (G H, D), bh (G H,) with the G gates of a cell stacked in the
order i, f, g, o (lstm), i, g, o (cifg), or r, z, n (gru_before; gru, which also has bhn (H,), added
to its Whh h of n). With several layers or both directions the names are Whh_l0, Whh_l0_reverse,
Whh_l1, ... The read-out is Why (C, H) and by (C,). h0, bhh, Wpi, Wpf and Wpo are there if asked
for. x is (T, B, D); y classes (B,) or (T, B), or targets; mask bool (T, B).

The dict that is returned must have d + name for every parameter (or the names after --required),
and may have loss, outputs, h (T + 1, B, H), c and dx: all that it has is judged. At the masked
steps after a sequence's end, the states of a net of one layer run on; those of several layers, of
both directions and without a read-out are 0.
"""

TOLERANCES = """example:
  refnet check tolerances --cell lstm --sizes 50,32,4
      for np.testing.assert_allclose(theirs, exact, rtol, atol) in a test of your own; double
      them where both sides are in the same type (refnet.check.tolerances has the formula)
"""

STATUS = """
exit status: 0 if all is explained by rounding (what a framework refuses to compute does not count),
1 if not, 2 if it could not be judged or on an error
"""

PLAIN = """
exit status: 0, or 2 on an error
"""

VECTORS = """example:
  refnet vectors write golden
  ./my_program golden results        (any language: golden/manifest.json says how)
  refnet vectors judge golden results
"""


def add_commands(subparsers: Any) -> None:
    """Add ``check`` and ``vectors``; each sets ``run``, a function of the parsed arguments
    that returns the exit status: 0 if all is explained by rounding, 1 if not."""
    check = _parser(subparsers, "check", "judge other frameworks by certified gradients",
                    f"examples:{TORCH}{OWN[1:]}{ONNX[1:]}{SIGMAS}")
    judges = check.add_subparsers(dest="judge", metavar="WHAT", required=True)
    for name, text, examples in (("torch", "PyTorch", TORCH), ("jax", "JAX", JAX)):
        one = _parser(judges, name, f"judge {text}'s layers, or a function written for it",
                      f"examples:{examples}{SIGMAS}")
        one.add_argument("--function", metavar="FILE.py:NAME", help="judge this loss(p, x, y), or "
                         "loss(p, x, y, mask), instead of the framework's own layers")
        one.add_argument("--device", metavar="NAME", help="where the framework computes, such as "
                         "cuda (torch), gpu (jax) or cpu (default: the framework's own choice)")
        _describing(one)
        _common(one, _judge_framework)
    own = _parser(judges, "function", "judge gradients that code of your own computes", FUNCTION)
    own.add_argument("function", nargs="?", metavar="FILE.py:NAME", help="the function to judge")
    own.add_argument("--example", choices=("c", "jax", "numpy", "torch"), help="print a file with "
                     "a correct function named gradients, to start from")
    own.add_argument("--required", metavar="NAMES", help="what the function has to return, such "
                     "as outputs,dx (default: the gradient of every parameter)")
    _describing(own)
    _common(own, _judge_own)
    own = _parser(judges, "tolerances",
                  "the rtol and atol that rounding warrants for each quantity", TOLERANCES, PLAIN)
    _describing(own)
    _common(own, _list_tolerances, verdicts=False)
    onnx = _parser(judges, "onnx", "judge ONNX runtimes, or a model's recurrent layer",
                   f"example:{ONNX}{SIGMAS}")
    onnx.add_argument("model", nargs="?", type=Path, metavar="MODEL.onnx", help="a model with one "
                      "RNN, LSTM or GRU (default: models of every kind, made here)")
    onnx.add_argument("--steps", type=size, default=20, metavar="T", help="steps of the sequences "
                      "that a model is run on (default: 20)")
    onnx.add_argument("--batch", type=size, default=4, metavar="B", help="how many sequences "
                      "(default: 4)")
    _common(onnx, _judge_onnx)
    keras = _parser(judges, "keras", "judge Keras's recurrent layers, on JAX",
                    SIGMAS)
    _common(keras, _judge_keras)
    rates = _parser(judges, "rates", "measure how often the verdict is wrong",
                    "example:\n  refnet check rates --nets 400\n      more than 4,000 correct "
                    "results of twenty implementations and 7,000 planted bugs, in half an hour\n",
                    "\nexit status: 0 if no verdict is wrong, 1 if one is, 2 on an error\n")
    rates.add_argument("--nets", type=size, default=400, metavar="N", help="random nets, each run "
                       "by every implementation that is written for it (default: 400)")
    rates.add_argument("--longest", type=size, default=784, metavar="T", help="the longest "
                       "sequence (default: 784)")
    rates.add_argument("--implementations", metavar="NAMES", help="comma-separated, such as "
                       "'compiled,C pairwise,PyTorch' (default: all)")
    _common(rates, _measure_rates, verdicts=False)
    checkers = _parser(judges, "checkers", "which planted bugs gradcheck, check_grads and "
                       "allclose find, beside this judge", "example:\n  refnet check checkers "
                       "--json FILE\n      which checker accepts which bug, in some minutes; FILE "
                       "also has the seconds that each took\n", PLAIN)
    _common(checkers, _compare_checkers, verdicts=False)

    vectors = _parser(subparsers, "vectors", "golden vectors for any language", VECTORS)
    actions = vectors.add_subparsers(dest="action", metavar="ACTION", required=True)
    write = _parser(actions, "write", "write the catalogue with its manifest", VECTORS, PLAIN)
    write.add_argument("folder", type=Path, metavar="DIR", help="the folder to write "
                       "to, made if it is not there")
    write.set_defaults(run=_write_vectors)
    judge = _parser(actions, "judge", "judge what a program wrote back", VECTORS)
    judge.add_argument("folder", type=Path, metavar="DIR", help="the folder that "
                       "`vectors write` wrote")
    judge.add_argument("theirs", type=Path, metavar="THEIRS", help="a folder with NAME.json, "
                       "NAME.npz or NAME.safetensors for every case that was run")
    judge.add_argument("--skip-missing", action="store_true", help="leave out the cases that "
                       "the program did not run")
    judge.set_defaults(run=_judge_vectors)


def _parser(subparsers: Any, name: str, text: str, examples: str, status: str = STATUS
            ) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = subparsers.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=examples + status,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    return made


def _common(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int],
            verdicts: bool = True) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random "
                        "parameters and inputs (default: 0)")
    parser.add_argument("--json", type=target, metavar="FILE", help="also write the rows to this "
                        "file, with every quantity")
    if verdicts:
        parser.add_argument("--junit", type=target, metavar="FILE", help="also write the verdicts "
                            "as JUnit XML, for continuous integration")
        parser.add_argument("--allow-suspicious", action="store_true", help="fail only what is "
                            "*not rounding*, not what is suspicious")
    parser.set_defaults(run=run)


def _describing(parser: argparse.ArgumentParser) -> None:
    """The options that say which net a function computes, and the sizes to run it at."""
    from refnet.check.arithmetic import NAMED
    from refnet.check.own import Described
    net = parser.add_argument_group("the net that a function computes")
    for entry in fields(Described):
        flag, text = f"--{entry.name}", entry.metadata["help"]
        if entry.type is bool:
            net.add_argument(flag, action="store_true", help=text)
        elif entry.type is int:
            net.add_argument(flag, type=size, default=entry.default, metavar="N",
                             help=f"{text} (default: {entry.default})")
        else:
            choices = entry.metadata["choices"]
            text += f": {', '.join(choices)}" if choices and entry.name != "h0" else ""
            net.add_argument(flag, default=entry.default, choices=choices or None, metavar="NAME",
                             help=text + (f" (default: {entry.default})" if entry.default else ""))
    net.add_argument("--sizes", type=sizes, nargs="+", metavar="T,H,B", help="steps, hidden units "
                     "and sequences; several may be given (default: 20,16,4)")
    net.add_argument("--dtypes", nargs="+", default=("float32", "float64"), metavar="NAME",
                     choices=("float16", "float32", "float64", *NAMED), help="what it computes in: "
                     f"float16, float32, float64, or {', '.join(NAMED)}; for these it gets its "
                     "numbers as float32 (default: float32 float64)")


DEFAULT = ((20, 16, 4),)
"""The sizes (T, H, B) that a function is judged at."""

LONGEST = 69
"""The letters of the longest name of a framework's layer in one of its forms."""


def _table(what: int = LONGEST, worst: int = len("dWhh_l0_reverse")) -> dict[str, int]:
    """The columns and their widths, for names that have so many letters."""
    return {"framework": 14, "version": 10, "what": what, "dtype": 16, "T": 4, "H": 3, "B": 2,
            "worst": worst, "z": 8, "verdict": 22, "convention": 0, "note": 0}


def _finish(rows: list[dict[str, Any]], args: argparse.Namespace) -> int:
    """Print how many are explained, write the files that are asked for; the exit status."""
    counts = Counter(row["verdict"] for row in rows)
    print(f"{counts['explained by rounding']} of {len(rows)} are explained by rounding"
          + (f", {counts['refused']} refused by the framework" if counts["refused"] else ""))
    save(args.json, rows)
    fine = {"explained by rounding", "refused"} | (
        {"suspicious"} if args.allow_suspicious else set())
    junit(args.junit, rows, fine)
    verdicts = {row["verdict"] for row in rows}
    return 2 if verdicts <= {"refused"} else _status(verdicts - fine)


def _status(unexplained: set[str]) -> int:
    """The exit status, from the verdicts that are no success."""
    return 0 if not unexplained else 2 if unexplained == {"cannot be judged"} else 1


def _progress(bits: int, products: int, seconds: float) -> None:
    """The progress of a long computation, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{bits} bits, {products} matrix products, {seconds:.1f} s", end="\r",
              file=sys.stderr, flush=True)


def _need(extra: str, *modules: str) -> None:
    """Raise ImportError, naming the extra, before any work or output that would be lost."""
    missing = [name for name in dict.fromkeys(("flint", *modules)) if find_spec(name) is None]
    if missing:
        names = ", ".join("python-flint" if name == "flint" else name for name in missing)
        raise ImportError(f"this needs {names}: pip install 'refnet[{extra}]'")


def _judge_framework(args: argparse.Namespace) -> int:
    _need(args.judge, args.judge)
    from refnet.check import survey
    from refnet.check.adapters import jax_nets, torch_nets
    adapter = torch_nets if args.judge == "torch" else jax_nets
    device = {"device": adapter.use_device(args.device)} if args.device else {}
    if args.function is None:
        every = survey.torch_rows if args.judge == "torch" else survey.jax_rows
        given, dtypes = _of_layers(args), tuple(args.dtypes)
        rows = every(given or survey.SIZES, args.seed, _progress, dtypes)
        both = chain(rows, _layer_rows(args.judge, args.seed, given, dtypes))
        return _finish(show(({**row, **device} for row in both), _table()), args)
    loss = loaded(args.function, one_number)
    return _judge_described(args, lambda params, batch: adapter.gradients(
        loss, params, batch), args.judge)


def _of_layers(args: argparse.Namespace) -> "Sizes":
    """The sizes at which a framework's own layers are judged, () if none are given. Raises
    ValueError for options that only a function has."""
    from refnet.check.own import Described
    for entry in fields(Described):
        if getattr(args, entry.name) != entry.default:
            raise ValueError(f"--{entry.name} describes the net of a --function FILE.py:NAME, "
                             "which is not given; without it all of the framework's own layers "
                             "are judged")
    coarse = set(args.dtypes) - {"float32", "float64", "tf32"}
    if coarse and args.judge == "jax":
        raise ValueError(f"JAX's own layers are judged in float32, float64 and tf32, not in "
                         f"{', '.join(sorted(coarse))}; pass a --function that computes in it")
    return tuple(args.sizes or ())


def _layer_rows(extra: str, seed: int, sizes: "Sizes" = (), dtypes: "Dtypes" = ()
                ) -> Iterator[dict[str, Any]]:
    """The layers of every framework that the command judges; of those on JAX what is installed."""
    from refnet.check import layers, survey
    packages = {"torch": ("torch",), "jax": ("flax", "equinox"), "keras": ("keras",)}[extra]
    for table in layers.TABLES:
        if table.package in packages and find_spec(table.package):
            for one in sizes or layers.SIZES:
                yield from layers.rows(table, one, dtypes or survey.DTYPES, seed)
    for package in packages:
        if find_spec(package) is None:
            print(f"{package} is not installed and was left out: pip install 'refnet[{package}]'",
                  file=sys.stderr)


def _judge_keras(args: argparse.Namespace) -> int:
    _need("keras", "keras", "jax")
    return _finish(show(_layer_rows("keras", args.seed), _table()), args)


def _judge_own(args: argparse.Namespace) -> int:
    from refnet.check.own import example
    if args.example:
        print(example(args.example), end="")
        return 0
    if args.function is None:
        raise ValueError("name a function, FILE.py:NAME, or start from one: refnet check function "
                         "--example numpy > mine.py")
    _need("certify")
    function = loaded(args.function, arrays_by_name)

    def called(params: "Params", batch: "Batch") -> "Params":
        found: Params = function(params, *(part for part in batch if part is not None))
        return found

    return _judge_described(args, called, "own",
                            tuple(args.required.split(",")) if args.required else None)


def _judge_described(args: argparse.Namespace, function: "Callable[[Params, Batch], Params]",
                     framework: str, required: tuple[str, ...] | None = None) -> int:
    from refnet.check.own import Described, own_rows
    described = Described(**{entry.name: getattr(args, entry.name) for entry in fields(Described)})
    rows = own_rows(function, described, args.sizes or DEFAULT, args.dtypes, args.seed, required,
                    _progress, args.function, framework)
    names = ["outputs", *(f"d{name}" for name in described.net(1).shapes)]
    return _finish(show(rows, _table(len(args.function), max(map(len, names)))), args)


def _list_tolerances(args: argparse.Namespace) -> int:
    _need("certify")
    from refnet.check.own import Described, tolerance_rows
    described = Described(**{entry.name: getattr(args, entry.name) for entry in fields(Described)})
    rows = tolerance_rows(described, args.sizes or DEFAULT, args.dtypes, args.seed, _progress)
    save(args.json, show(rows, {"dtype": 8, "T": 4, "H": 3, "B": 2, "quantity": 16, "rtol": 9,
                                "atol": 9}))
    return 0


def _judge_onnx(args: argparse.Namespace) -> int:
    _need("onnx", "onnx", "onnxruntime")
    from refnet.check import layers, survey
    if args.model is None:
        both = chain(survey.onnx_rows(seed=args.seed, progress=_progress),
                     layers.onnx_rows(seed=args.seed))
        return _finish(show(both, _table()), args)
    rows = survey.model_rows(args.model, args.steps, args.batch, args.seed, _progress)
    return _finish(show(rows, _table(len(f"{args.model.name}: gru_before"))), args)


def _measure_rates(args: argparse.Namespace) -> int:
    from refnet.check import errorrates
    from refnet.check.implementations import IMPLEMENTATIONS
    names = tuple(args.implementations.split(",") if args.implementations else IMPLEMENTATIONS)
    unknown = set(names) - set(IMPLEMENTATIONS)
    if unknown:
        raise ValueError(f"--implementations: {', '.join(unknown)} is unknown; choose from "
                         f"{', '.join(IMPLEMENTATIONS)}")
    _need("all,test", *(module for name, module in (
        ("PyTorch", "torch"), ("JAX", "jax"), ("autograd", "autograd"), ("onnxruntime", "onnx"),
        ("onnxruntime", "onnxruntime"), ("ONNX reference", "onnx")) if name in names))
    columns = {"what": 60, "cell": 6, "dtype": 8, "T": 4, "H": 3, "B": 2, "worst": 8, "z": 9,
               "verdict": 22, "convention": 0}
    rows = show(errorrates.correct_rows(args.nets, args.seed, args.longest, names), columns)
    rows += show(errorrates.bug_rows(args.seed), columns)
    found = errorrates.summary(rows)
    tables = errorrates.tables(rows)
    save(args.json, tables.pop("rows"), summary=found, **tables)
    print("\n".join(f"{name.replace('_', ' ')}: {cell(value)}" for name, value in found.items()))
    return 1 if found["false_alarms"] or found["missed"] else 0


def _compare_checkers(args: argparse.Namespace) -> int:
    _need("torch,jax", "torch", "jax")
    from refnet.check.checkers import CHECKERS, checker_rows
    columns = {"case": 25, "bug": 60, **{name: len(name) for name in CHECKERS}}
    save(args.json, show(checker_rows(args.seed), columns))
    return 0


def _write_vectors(args: argparse.Namespace) -> int:
    _need("certify")
    from refnet.check import vectors
    count = 0

    def count_one(name: str) -> None:
        nonlocal count
        count += 1
        if sys.stderr.isatty():
            print(f"\r{count:4} {name:40}", end="", file=sys.stderr, flush=True)

    vectors.write(args.folder, progress=count_one)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{count} cases in three encodings, and manifest.json, written to {args.folder}")
    return 0


def _judge_vectors(args: argparse.Namespace) -> int:
    from refnet.check import vectors
    every = vectors.judge(args.folder, args.theirs)
    verdicts = {name: verdict for name, verdict in every.items()
                if not args.skip_missing or vectors.results(args.theirs, name)}
    rows = [{"case": name, "dtype": verdict.dtype, "worst": verdict.worst.name,
             "z": verdict.worst.z, "verdict": verdict.verdict, "convention": verdict.convention,
             "note": verdict.note} for name, verdict in verdicts.items()]
    show(rows, {"case": 32, "dtype": 8, "worst": 8, "z": 9, "verdict": 22, "convention": 0,
                "note": 0})
    passed = sum(verdict.passed for verdict in verdicts.values())
    skipped = len(every) - len(verdicts)
    print(f"{passed} of {len(verdicts)} cases are explained by rounding"
          + f"; {skipped} without a result were skipped" * bool(skipped))
    for file, advice in vectors.foreign(args.theirs, every).items():
        print(cell(f"{file} is no result of a case and was not judged; {advice}"),
              file=sys.stderr)
    return _status({verdict.verdict for verdict in verdicts.values() if not verdict.passed})
