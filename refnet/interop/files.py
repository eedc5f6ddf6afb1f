"""Nets in files of other frameworks: ONNX (``.onnx``), PyTorch's names (``.safetensors``), Keras
(``.keras``), and refnet's own (``.npz``).

Checked by: tests/interop/test_travel.py.
"""

from io import BytesIO
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from warnings import catch_warnings

import numpy as np

from refnet.batch import Params
from refnet.common.arguments import PATH, choice, takes
from refnet.interop import keras_weights, onnx_graph, onnx_models, package, torch_weights
from refnet.nets.gradients import NET, Net
from refnet.runs.files import write_named
from refnet.runs.read import contents, json_of, reading
from refnet.runs.unpack import safetensors_of
from refnet.training.saved import SavedNet, load_net, save

FORMATS = (".onnx", ".safetensors", ".keras", ".npz")
STATES = (".pt", ".pth")
"""What torch.save writes; a state dict is read from it, and no code runs."""
LIMIT = 2**31


@takes(path=PATH, net=NET)
def write(path: Path | str, net: Net, params: Params, lengths: bool = False) -> None:
    """Write a net as the format that the file's name says: .onnx, .safetensors (the tensors by
    PyTorch's names: rnn.weight_ih_l0, ..., head.weight), .keras or .npz (``refnet.save``).

    Transitions are written as the matrix that they make. ``lengths``: an ONNX model has a second
    input, the number of steps of each sequence. Raises ValueError, and writes nothing, for what
    the format does not have.

    >>> from tempfile import TemporaryDirectory
    >>> from refnet import RecurrentNet
    >>> net = RecurrentNet(inputs=2, hidden=4, outputs=3, cell="lstm", transition="cayley")
    >>> params = net.init(np.random.default_rng(0))
    >>> with TemporaryDirectory() as folder:
    ...     write(f"{folder}/net.npz", net, params)
    ...     again = read(f"{folder}/net.npz")
    >>> bool((again.params["Wxh"] == params["Wxh"]).all())
    True

    Checked by: tests/interop/test_travel.py.
    """
    path = Path(path)
    choice("the format", path.suffix, FORMATS)
    if path.suffix == ".npz":
        return save(path, net, params)
    if path.suffix == ".onnx":
        data = onnx_models.to_model(net, params, lengths).SerializeToString()
    elif path.suffix == ".safetensors":
        arrays = torch_weights.arrays_of(net, params)
        contiguous = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
        names = {"activation": net.activation.name, "readout": getattr(net, "readout", "last")}
        data = package("safetensors.numpy", "safetensors").save(contiguous, names)
    else:
        with TemporaryDirectory() as folder, catch_warnings(action="ignore"):
            keras_weights.to_model(net, params).save(f"{folder}/net.keras")
            data = Path(folder, "net.keras").read_bytes()
    write_named(path, methodcaller("write", data))
    return None


@takes(path=PATH)
def read(path: Path | str) -> SavedNet:
    """The net and its parameters in a file of one of the formats of ``write``, as other programs
    write it: torch.onnx.export's models, Keras's models, weights by PyTorch's names, which may be
    in a state dict that torch.save wrote (.pt, .pth). Weights of others do not say the activation
    and the read-out; they are tanh and the last step then.

    Raises FileError naming the file, and what in it is no part of one of refnet's nets.

    Checked by: tests/interop/test_travel.py.
    """
    path = Path(path)
    choice("the format", path.suffix, (*FORMATS, *STATES))
    if path.suffix == ".npz":
        return load_net(path)
    if path.suffix == ".onnx":
        proto = onnx_graph.load(path)
    with reading(path, "need a model whose layers refnet has, see refnet/interop/README.md"):
        if path.suffix == ".onnx":
            return SavedNet(*onnx_models.net_of(proto))
        data = contents(path, LIMIT)
        if path.suffix == ".keras":
            with TemporaryDirectory() as folder, catch_warnings(action="ignore"):
                copy = Path(folder, "net.keras")
                copy.write_bytes(data)
                return SavedNet(*keras_weights.net_of(_keras_model(copy)))
        if path.suffix in STATES:
            return SavedNet(*torch_weights.net_of(_state_dict(data)))
        arrays = safetensors_of(data)
        notes = json_of(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
        known = {name: notes[name] for name in ("activation", "readout") if name in notes}
        return SavedNet(*torch_weights.net_of(arrays, **known))


def _state_dict(data: bytes) -> Params:
    """The arrays of a state dict that torch.save wrote. torch's errors have no common type."""
    torch = torch_weights.torch_package()
    try:
        state = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
        return {name: torch_weights.array(value) for name, value in state.items()}
    except Exception as error:
        raise ValueError(f"torch reads no state dict: {str(error).splitlines()[0][:200]}") from None


def _keras_model(path: Path) -> Any:
    """A Keras model without code of its own. Keras's errors have no common type."""
    load_model = keras_weights.keras_package().saving.load_model
    try:
        return load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        raise ValueError(f"Keras cannot load it: {str(error).splitlines()[0][:200]}") from None
