"""``refnet export``."""

import argparse
from typing import Any

from refnet.common.commands import Subparsers, add_command
from refnet.common.names import TRUST
from refnet.runs.files import named


def add_export(commands: Subparsers) -> None:
    """Enter the command in the command line's parser."""
    parser = add_command(
        commands,
        "export",
        _export,
        "write a trained net for ONNX, PyTorch or Keras, or read one of theirs",
        "Write the net of a run as model.onnx (any number of steps and sequences), "
        "model.safetensors (the tensors by PyTorch's names: embedding, rnn, head), model.keras or, "
        "for refnet.load, model.npz. What a format does not have is refused by name. The inputs "
        "are those of the net, time-major (batch-first in Keras): what the task does to the data "
        "before, such as scaling columns, is not part of it.",
        "Examples: refnet export runs/NAME --to model.onnx; refnet export model.onnx --to net.npz",
    )
    parser.add_argument(
        "source",
        type=named,
        metavar="RUN",
        help="the folder of a run, or a net's file: .npz, .onnx, .safetensors or .keras",
    )
    parser.add_argument(
        "--to",
        type=named,
        required=True,
        metavar="FILE",
        help="the file to write: .onnx, .safetensors, .keras or .npz",
    )
    parser.add_argument(
        "--last", action="store_true", help="of a run the last parameters (default: the best)"
    )
    parser.add_argument(
        "--lengths",
        action="store_true",
        help="an ONNX model with a second input, lengths: the steps of each sequence, (B,)",
    )
    parser.add_argument("--trust", action="store_true", help=TRUST)


def _export(args: argparse.Namespace) -> int:
    from refnet.interop.files import FORMATS, STATES, read, write
    from refnet.training.load import load
    from refnet.training.saved import SavedNet

    if args.source.suffix in (*FORMATS[:-1], *STATES):
        loaded: Any = read(args.source)
    else:
        loaded = load(args.source, args.trust)
    net, params = loaded.net, loaded.params
    if not isinstance(loaded, SavedNet) and not args.last and loaded.best:
        params = loaded.best_params
    write(args.to, net, params, args.lengths)
    size = args.to.stat().st_size if args.to.is_file() else 0
    print(f"{args.to}: {net}, {sum(p.size for p in params.values()):,} parameters, {size:,} bytes")
    return 0
