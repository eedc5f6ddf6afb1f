"""``refnet check`` and ``refnet vectors``: the only part of the judge that prints."""

import argparse
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from refnet.check.loader import loaded
from refnet.check.tables import cell, save, show, size, target

__all__ = ["add_commands"]

CHECK = """examples:
  refnet check torch
      judge the installed torch.nn.RNN, LSTM, GRU (of 1 to 3 layers, in one direction and both,
      batch-first, packed, with and without biases), Linear stacks and orthogonal
      parametrisations, in float32 and float64
  refnet check torch --function mine.py:loss --cell lstm --hidden 16 --steps 40
      judge a function of your own: loss(p, x, y) takes tensors, p["Whh"], p["Wxh"],
      p["bh"], p["Why"], p["by"] and so on, and returns the mean cross-entropy
  refnet check onnx model.onnx
      judge the forward pass of a model's RNN, LSTM or GRU by both ONNX runtimes

A difference is measured in sigmas of rounding: up to 6 it is explained by rounding, above
12 it is not, and the convention that would explain it is named if there is one.
"""

VECTORS = """example:
  refnet vectors write golden
  ./my_program golden results        (any language: golden/manifest.json says how)
  refnet vectors judge golden results
"""


def add_commands(subparsers: Any) -> None:
    """Add ``check`` and ``vectors``; each sets ``run``, a function of the parsed arguments
    that returns the exit status: 0 if all is explained by rounding, 1 if not."""
    check = _parser(subparsers, "check", "judge other frameworks by certified gradients", CHECK)
    judges = check.add_subparsers(dest="judge", metavar="WHAT", required=True)
    for name, text in (("torch", "PyTorch"), ("jax", "JAX")):
        one = _parser(judges, name, f"judge {text}'s layers, or a function written for it",
                      CHECK)
        one.add_argument("--function", metavar="FILE.py:NAME", help="judge this loss(p, x, y) "
                         "instead of the framework's own layers")
        one.add_argument("--cell", default="rnn", choices=("rnn", "lstm", "gru", "gru_before"),
                         metavar="NAME", help="the net the function computes: rnn, "
                         "lstm, gru or gru_before (default: rnn)")
        one.add_argument("--hidden", type=size, default=16, metavar="H")
        one.add_argument("--steps", type=size, default=20, metavar="T")
        one.add_argument("--batch", type=size, default=4, metavar="B")
        _common(one, _judge_framework)
    onnx = _parser(judges, "onnx", "judge ONNX runtimes, or a model's recurrent layer", CHECK)
    onnx.add_argument("model", nargs="?", type=Path, metavar="MODEL.onnx", help="a model with one "
                      "RNN, LSTM or GRU (default: models of every kind, made here)")
    onnx.add_argument("--steps", type=size, default=20, metavar="T")
    onnx.add_argument("--batch", type=size, default=4, metavar="B")
    _common(onnx, _judge_onnx)
    rates = _parser(judges, "rates", "measure how often the verdict is wrong",
                    "example:\n  refnet check rates --nets 400\n      more than 4,000 correct "
                    "results of twenty implementations and 7,000 planted bugs: half an hour\n")
    rates.add_argument("--nets", type=size, default=400, metavar="N", help="random nets, each run "
                       "by every implementation that is written for it (default: 400)")
    rates.add_argument("--longest", type=size, default=784, metavar="T", help="the longest "
                       "sequence (default: 784)")
    rates.add_argument("--implementations", metavar="NAMES", help="comma-separated, such as "
                       "'compiled,C pairwise,PyTorch' (default: all)")
    _common(rates, _measure_rates)
    checkers = _parser(judges, "checkers", "the planted bugs before gradcheck, check_grads and "
                       "allclose", "example:\n  refnet check checkers\n      which checker passes "
                       "which bug, side by side\n")
    _common(checkers, _compare_checkers)

    vectors = _parser(subparsers, "vectors", "golden vectors for any language", VECTORS)
    actions = vectors.add_subparsers(dest="action", metavar="ACTION", required=True)
    write = _parser(actions, "write", "write the catalogue with its manifest", VECTORS)
    write.add_argument("folder", type=Path, metavar="DIR", help="made if it is not there")
    write.set_defaults(run=_write_vectors)
    judge = _parser(actions, "judge", "judge what a program wrote back", VECTORS)
    judge.add_argument("folder", type=Path, metavar="DIR", help="what `vectors write` wrote")
    judge.add_argument("theirs", type=Path, metavar="THEIRS", help="a folder with NAME.json, .npz "
                       "or .safetensors for every case that was run")
    judge.add_argument("--skip-missing", action="store_true", help="leave out the cases that "
                       "the program did not run")
    judge.set_defaults(run=_judge_vectors)


def _parser(subparsers: Any, name: str, text: str, examples: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = subparsers.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    return made


def _common(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=target, metavar="FILE", help="write the rows there, too")
    parser.set_defaults(run=run)


TABLE = {"framework": 14, "version": 10, "what": 24, "dtype": 8, "T": 4, "H": 3, "B": 2,
         "worst": 8, "z": 8, "verdict": 22, "convention": 0, "note": 0}


def _finish(rows: list[dict[str, Any]], path: Path | None) -> int:
    save(path, rows)
    return 0 if all(row["verdict"] in ("explained by rounding", "refused") for row in rows) else 1


def _progress(bits: int, products: int, seconds: float) -> None:
    """The progress of a long certification, on a terminal."""
    if sys.stderr.isatty():
        print(f"\rcertifying: {bits} bits, {products} matrix products, {seconds:.1f} s", end="\r",
              file=sys.stderr, flush=True)


def _need(extra: str, *modules: str) -> None:
    """Raise ImportError, naming the extra, before any work or output that would be lost."""
    missing = [module for module in ("flint", *modules) if find_spec(module) is None]
    if missing:
        names = ", ".join("python-flint" if name == "flint" else name for name in missing)
        raise ImportError(f"this needs {names}: pip install 'refnet[{extra}]'")


def _judge_framework(args: argparse.Namespace) -> int:
    _need(args.judge, args.judge)
    from refnet.check import survey
    if args.function is None:
        every = survey.torch_rows if args.judge == "torch" else survey.jax_rows
        rows = every(seed=args.seed, progress=_progress)
        if args.judge == "torch":
            rows = chain(rows, survey.layer_rows(seed=args.seed))
        return _finish(show(rows, TABLE), args.json)
    return _finish(show(_own_function(args, loaded(args.function)), TABLE), args.json)


def _own_function(args: argparse.Namespace, loss: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    from refnet.batch import Batch, Params
    from refnet.check import survey
    from refnet.check.adapters import jax_nets, torch_nets
    from refnet.nets.recurrent import RecurrentNet
    gradients = torch_nets.gradients if args.judge == "torch" else jax_nets.gradients
    net = RecurrentNet(3, args.hidden, 5, cell=args.cell)

    def function(params: Params, batch: Batch) -> Params:
        return gradients(loss, params, batch)

    for dtype in (np.float32, np.float64):
        verdict, _ = survey.judge_function(net, function, dtype, args.steps, args.batch,
                                           args.seed, _progress)
        yield survey.row(args.judge, args.judge, args.function, verdict, T=args.steps,
                         H=args.hidden, B=args.batch)


def _judge_onnx(args: argparse.Namespace) -> int:
    _need("onnx", "onnx", "onnxruntime")
    from refnet.check import survey
    if args.model is None:
        return _finish(show(survey.onnx_rows(seed=args.seed, progress=_progress), TABLE), args.json)
    rows = survey.model_rows(args.model, args.steps, args.batch, args.seed, _progress)
    return _finish(show(rows, TABLE), args.json)


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
    from refnet.check.checkers import checker_rows
    columns = {"case": 7, "bug": 60, "refnet float32": 14, "refnet float64": 14, "gradcheck": 9,
               "check_grads": 11, "allclose": 8, "assert_allclose": 15}
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
    from refnet.check.encodings import ENCODINGS
    verdicts = vectors.judge(args.folder, args.theirs)
    if args.skip_missing:
        verdicts = {name: verdict for name, verdict in verdicts.items() if any(
            (args.theirs / f"{name}.{encoding}").exists() for encoding in ENCODINGS)}
    rows = [{"case": name, "dtype": verdict.dtype, "worst": verdict.worst.name,
             "z": verdict.worst.z, "verdict": verdict.verdict, "convention": verdict.convention,
             "note": verdict.worst.note} for name, verdict in verdicts.items()]
    show(rows, {"case": 32, "dtype": 8, "worst": 8, "z": 9, "verdict": 22, "convention": 0,
                "note": 0})
    passed = sum(verdict.passed for verdict in verdicts.values())
    print(f"{passed} of {len(verdicts)} cases are explained by rounding")
    return 0 if passed == len(verdicts) else 1
