"""``refnet check`` and ``refnet vectors``: the only part of the judge that prints."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from refnet.runs.files import write_text

__all__ = ["add_commands"]

CHECK = """examples:
  refnet check torch
      judge the installed torch.nn.RNN, LSTM, GRU, Linear stacks and orthogonal
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
    that returns the exit status: 0 if all is explained by rounding, else 1."""
    check = _parser(subparsers, "check", "judge other frameworks by certified gradients", CHECK)
    judges = check.add_subparsers(dest="judge", metavar="WHAT", required=True)
    for name, text in (("torch", "PyTorch"), ("jax", "JAX")):
        one = _parser(judges, name, f"judge {text}'s layers, or a function written for it",
                      CHECK)
        one.add_argument("--function", metavar="FILE.py:NAME", help="judge this loss(p, x, y) "
                         "instead of the framework's own layers")
        one.add_argument("--cell", default="rnn", help="the net the function computes: rnn, "
                         "lstm, gru or gru_before (default: rnn)")
        one.add_argument("--hidden", type=int, default=16, metavar="H")
        one.add_argument("--steps", type=int, default=20, metavar="T")
        one.add_argument("--batch", type=int, default=4, metavar="B")
        _common(one, _judge_framework)
    onnx = _parser(judges, "onnx", "judge ONNX runtimes, or a model's recurrent layer", CHECK)
    onnx.add_argument("model", nargs="?", type=Path, metavar="MODEL.onnx", help="a model with one "
                      "RNN, LSTM or GRU (default: models of every kind, made here)")
    onnx.add_argument("--steps", type=int, default=20, metavar="T")
    onnx.add_argument("--batch", type=int, default=4, metavar="B")
    _common(onnx, _judge_onnx)
    rates = _parser(judges, "rates", "measure how often the verdict is wrong",
                    "example:\n  refnet check rates --nets 200\n      1,000 correct results of "
                    "five implementations and 440 planted bugs: takes a quarter of an hour\n")
    rates.add_argument("--nets", type=int, default=200, metavar="N", help="random nets, each run "
                       "by every implementation (default: 200)")
    rates.add_argument("--longest", type=int, default=784, metavar="T", help="the longest "
                       "sequence (default: 784)")
    rates.add_argument("--implementations", metavar="NAMES", help="comma-separated, of NumPy, "
                       "permuted NumPy, compiled, PyTorch, JAX (default: all)")
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    parser.set_defaults(run=run)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, bool):
        return "passes" if value else "-"
    return str(value)


def _show(rows: Iterable[dict[str, Any]], columns: dict[str, int]) -> list[dict[str, Any]]:
    """Print each row as it comes, and return them all."""
    print("  ".join(name.ljust(width) for name, width in columns.items()).rstrip(), flush=True)
    kept = []
    for row in rows:
        kept.append(row)
        print("  ".join(_cell(row.get(name, "")).ljust(width)
                        for name, width in columns.items()).rstrip(), flush=True)
    return kept


def _plain(value: Any) -> Any:
    """JSON has no infinities: they become strings, as everywhere in refnet."""
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _save(path: Path | None, rows: list[dict[str, Any]], **facts: Any) -> None:
    if path is not None:
        from refnet.runs.rows import environment
        content = {"environment": environment(), **facts, "rows": rows}
        write_text(path, json.dumps(_plain(content), indent=1, allow_nan=False) + "\n")


TABLE = {"framework": 14, "version": 10, "what": 24, "dtype": 8, "T": 4, "H": 3, "B": 2,
         "worst": 8, "z": 8, "verdict": 22, "convention": 0, "note": 0}


def _finish(rows: list[dict[str, Any]], path: Path | None) -> int:
    _save(path, rows)
    return 0 if all(row["verdict"] in ("explained by rounding", "refused") for row in rows) else 1


def _told(bits: int, products: int, seconds: float) -> None:
    """The progress of a long certification, on a terminal."""
    if sys.stderr.isatty():
        print(f"\rcertifying: {bits} bits, {products} matrix products, {seconds:.1f} s", end="\r",
              file=sys.stderr, flush=True)


def _judge_framework(args: argparse.Namespace) -> int:
    from refnet.check import survey
    if args.function is None:
        every = survey.torch_rows if args.judge == "torch" else survey.jax_rows
        return _finish(_show(every(seed=args.seed, progress=_told), TABLE), args.json)
    return _finish(_show(_own_function(args), TABLE), args.json)


def _own_function(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from refnet.batch import Batch, Params
    from refnet.check import survey
    from refnet.check.adapters import jax_nets, torch_nets
    from refnet.nets.recurrent import RecurrentNet
    gradients = torch_nets.gradients if args.judge == "torch" else jax_nets.gradients
    loss = _loaded(args.function)
    net = RecurrentNet(3, args.hidden, 5, cell=args.cell)

    def function(params: Params, batch: Batch) -> Params:
        return gradients(loss, params, batch)

    for dtype in (np.float32, np.float64):
        verdict, _ = survey.judge_function(net, function, dtype, args.steps, args.batch,
                                           args.seed, _told)
        yield survey.row(args.judge, args.judge, args.function, verdict, T=args.steps,
                         H=args.hidden, B=args.batch)


def _loaded(place: str) -> Callable[..., Any]:
    """The function NAME of FILE.py; running that file is what the user asked for."""
    path, _, name = place.rpartition(":")
    if not path or not Path(path).is_file():
        raise ValueError(f"--function {place}: need FILE.py:NAME, such as mine.py:loss, with a "
                         "file that exists")
    spec = spec_from_file_location("own_function", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"--function {place}: {path} is no Python file")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise ValueError(f"--function {place}: {path} has no function {name}")
    return getattr(module, name)  # type: ignore[no-any-return]


def _judge_onnx(args: argparse.Namespace) -> int:
    from refnet.check import survey
    if args.model is None:
        return _finish(_show(survey.onnx_rows(seed=args.seed, progress=_told), TABLE), args.json)
    rows = survey.model_rows(args.model, args.steps, args.batch, args.seed, _told)
    return _finish(_show(rows, TABLE), args.json)


def _measure_rates(args: argparse.Namespace) -> int:
    from refnet.check import errorrates
    names = tuple(args.implementations.split(",")) if args.implementations else tuple(
        errorrates.IMPLEMENTATIONS)
    unknown = set(names) - set(errorrates.IMPLEMENTATIONS)
    if unknown:
        raise ValueError(f"--implementations: {', '.join(unknown)} is unknown; choose of "
                         f"{', '.join(errorrates.IMPLEMENTATIONS)}")
    columns = {"what": 34, "cell": 6, "dtype": 8, "T": 4, "H": 3, "B": 2, "worst": 8, "z": 9,
               "verdict": 22, "convention": 0}
    rows = _show(errorrates.correct_rows(args.nets, args.seed, args.longest, names), columns)
    rows += _show(errorrates.bug_rows(args.seed), columns)
    found = errorrates.summary(rows)
    _save(args.json, rows, summary=found)
    print("\n".join(f"{name.replace('_', ' ')}: {_cell(value)}" for name, value in found.items()))
    return 1 if found["false_alarms"] or found["missed"] else 0


def _compare_checkers(args: argparse.Namespace) -> int:
    from refnet.check import errorrates
    columns = {"case": 7, "bug": 52, "refnet float32": 14, "refnet float64": 14, "gradcheck": 9,
               "check_grads": 11, "allclose": 8, "assert_allclose": 15}
    _save(args.json, _show(errorrates.checker_rows(args.seed), columns))
    return 0


def _write_vectors(args: argparse.Namespace) -> int:
    from refnet.check import vectors
    count = 0

    def told(name: str) -> None:
        nonlocal count
        count += 1
        if sys.stderr.isatty():
            print(f"\r{count:4} {name:40}", end="", file=sys.stderr, flush=True)

    vectors.write(args.folder, progress=told)
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
    _show(rows, {"case": 32, "dtype": 8, "worst": 8, "z": 9, "verdict": 22, "convention": 0,
                 "note": 0})
    passed = sum(verdict.passed for verdict in verdicts.values())
    print(f"{passed} of {len(verdicts)} cases are explained by rounding")
    return 0 if passed == len(verdicts) else 1
