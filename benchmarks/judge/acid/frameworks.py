"""What the acid test judges: frameworks, how each is called, and its layers."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.judge import implementations
from benchmarks.records import Row
from refnet.batch import Batch, Params
from refnet.check.adapters import framework_errors, jax_nets, torch_nets
from refnet.check.userfunction import arrays_by_name, example
from refnet.nets.recurrent import RecurrentNet

__all__ = ["FRAMEWORKS", "Framework", "Layer", "versions"]

Results = Callable[[RecurrentNet, Params, Batch], Params]
Change = tuple[str, str]
ADAPTERS = Path(__file__).parent / "adapters"


@dataclass(frozen=True)
class Layer:
    """A layer: what it computes, as options of ``Described``; ``changes`` of the adapter's text:
    each first string becomes the second; ``longest``: T beyond which it takes too long."""

    net: Row
    changes: tuple[Change, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "float64")
    longest: int = 500


@dataclass(frozen=True)
class Framework:
    """A framework. ``packages``: of Python's, or npm:NAME of node's, with what it runs on;
    ``adapter``: the name of a file in adapters or of an example (``refnet check function
    --example``), or a function; ``variables``: of its process's environment; ``required``: what it
    computes, if that is not all gradients."""

    packages: tuple[str, ...]
    adapter: str | Results
    layers: dict[str, Layer]
    changes: tuple[Change, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    required: tuple[str, ...] | None = None

    def results(self, net: RecurrentNet, layer: Layer) -> Callable[[Params, Batch], Params]:
        """The function to judge, of nets like this one, of any sizes."""

        def call(params: Params, batch: Batch) -> Params:
            if isinstance(self.adapter, str):
                gradients = gradients_of(self.text(layer))
                with framework_errors():
                    return arrays_by_name(gradients(params, batch.x, batch.y))
            (_, H), (_, D), C = params["Whh"].shape, params["Wxh"].shape, len(params["by"])
            return self.adapter(replace(net, inputs=D, hidden=H, outputs=C), params, batch)

        return call

    def text(self, layer: Layer) -> str:
        """The adapter's text; "" of a function. Raises ValueError if what a change replaces is not
        there once."""
        if not isinstance(self.adapter, str):
            return ""
        path = ADAPTERS / f"{self.adapter}.py"
        text = path.read_text(encoding="utf-8") if path.exists() else example(self.adapter)
        for old, new in (*self.changes, *layer.changes):
            if text.count(old) != 1:
                raise ValueError(f"{self.adapter}: {old!r} is there {text.count(old)} times")
            text = text.replace(old, new)
        return text

    def digest(self, layer: Layer) -> str:
        """That of the adapter's text."""
        return sha256(self.text(layer).encode()).hexdigest()[:12]


@cache
def gradients_of(text: str) -> Callable[..., Params]:
    """The function ``gradients`` of an adapter's text."""
    names: Row = {"__name__": "adapter"}
    exec(compile(text, "adapter.py", "exec"), names)
    function: Callable[..., Params] = names["gradients"]
    return function


def versions(framework: Framework) -> dict[str, str]:
    """Of each of its packages, "" of one that is not installed."""
    return {package.removeprefix("npm:"): version_of(package) for package in framework.packages}


@cache
def version_of(package: str) -> str:
    if package.startswith("npm:"):
        ask = f"process.stdout.write(require('{package[4:]}/package.json').version)"
        try:
            return subprocess.run(["node", "-e", ask], capture_output=True, text=True).stdout
        except FileNotFoundError:
            return ""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


RNN, LSTM, GRU, BEFORE = (Layer({"cell": cell}) for cell in ("rnn", "lstm", "gru", "gru_before"))
RELU: Row = {"cell": "rnn", "activation": "relu"}
PEEPHOLES = Layer({"cell": "lstm", "peepholes": True}, dtypes=("float32",))
CELLS = {"rnn": RNN, "lstm": LSTM, "gru": GRU}
KERAS = {
    "SimpleRNN": RNN,
    "SimpleRNN relu": Layer(RELU, (("else keras.layers.LSTM)(H,", "else None)(H, 'relu',"),)),
    "LSTM": LSTM,
    "GRU reset_after": GRU,
    "GRU reset before": BEFORE,
}
FUNCTION = "@tf.function"
RUNS = {
    "eager": (FUNCTION, ""),
    "graph": (FUNCTION, FUNCTION),
    "XLA": (FUNCTION, f"{FUNCTION}(jit_compile=True)"),
}
"""How TensorFlow runs a function."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def single(layer: Layer) -> Layer:
    """A layer that there is in float32 alone."""
    return replace(layer, dtypes=("float32",))


def keras(backend: str, package: str, *changes: Change) -> Framework:
    """Keras on a backend."""
    variables = {**QUIET, "KERAS_BACKEND": backend}
    return Framework(("keras", package), "keras", KERAS, changes, variables)


def forward(package: str, *changes: Change) -> Framework:
    """What runs ONNX models, forward only."""
    layers = {"RNN": RNN, "LSTM": LSTM, "GRU linear_before_reset": GRU, "GRU": BEFORE}
    return Framework((package, "onnx"), package, layers, changes, required=("h",))


FRAMEWORKS: dict[str, Framework] = {
    "PyTorch": Framework(
        ("torch",),
        torch_nets.results,
        {"nn.RNN": RNN, "nn.RNN relu": Layer(RELU), "nn.LSTM": LSTM, "nn.GRU": GRU},
    ),
    "PyTorch, cells": Framework(
        ("torch",), "torch_cells", {"RNNCell": RNN, "LSTMCell": LSTM, "GRUCell": GRU}
    ),
    "JAX": Framework(
        ("jax",), jax_nets.results, {f"lax.scan {cell}": layer for cell, layer in CELLS.items()}
    ),
    "Flax": Framework(
        ("flax", "jax"),
        partial(jax_nets.layer_results, "Flax"),
        {"nnx.SimpleCell": RNN, "nnx.OptimizedLSTMCell": LSTM},
    ),
    "Equinox": Framework(
        ("equinox", "jax"),
        partial(jax_nets.layer_results, "Equinox"),
        {"nn.LSTMCell": LSTM, "nn.GRUCell": GRU},
    ),
    "Haiku": Framework(
        ("dm-haiku", "jax"), "haiku", {"VanillaRNN": Layer(RELU), "LSTM": LSTM, "GRU": BEFORE}
    ),
    "Keras on JAX": keras("jax", "jax"),
    "Keras on PyTorch": keras("torch", "torch"),
    **{
        f"Keras on TensorFlow, {run}": keras("tensorflow", "tensorflow-cpu", change)
        for run, change in RUNS.items()
    },
    **{
        f"TensorFlow, {run}": Framework(
            ("tensorflow-cpu",),
            "tensorflow",
            {f"tf.scan {cell}": layer for cell, layer in CELLS.items()},
            (change,),
            QUIET,
        )
        for run, change in RUNS.items()
    },
    "TensorFlow, kernels": Framework(
        ("tensorflow-cpu",),
        "tf_blocks",
        {
            "BlockLSTMV2": single(LSTM),
            "BlockLSTMV2 peepholes": PEEPHOLES,
            "GRUBlockCell": single(BEFORE),
        },
        variables=QUIET,
    ),
    "PaddlePaddle": Framework(
        ("paddlepaddle",),
        "paddle",
        {
            "nn.SimpleRNN": RNN,
            "nn.SimpleRNN relu": Layer(
                RELU, (("time_major=True)", "time_major=True, activation='relu')"),)
            ),
            "nn.LSTM": LSTM,
            "nn.GRU": GRU,
        },
    ),
    "MindSpore": Framework(
        ("mindspore",),
        "mindspore",
        {"nn.RNN": single(RNN), "nn.LSTM": single(LSTM), "nn.GRU": single(GRU)},
    ),
    # it compiles every step by itself: gates over 500 steps take 12 GB and more than half an hour
    "tinygrad": Framework(
        ("tinygrad",),
        "tinygrad",
        {"rnn": RNN, "lstm": replace(LSTM, longest=100), "gru": replace(GRU, longest=100)},
    ),
    "mygrad": Framework(("mygrad",), "mygrad", {"rnn": RNN, "lstm": LSTM, "layers.gru": BEFORE}),
    "autograd": Framework(
        ("autograd",), implementations.by_autograd, {**CELLS, "gru_before": BEFORE}
    ),
    "numpy-ml": Framework(("numpy-ml",), "numpy_ml", {"RNNCell": RNN, "LSTMCell": LSTM}),
    "thinc": Framework(("thinc",), "thinc", {"LSTM": single(LSTM)}),
    "TensorFlow.js": Framework(
        ("npm:@tensorflow/tfjs",),
        "tfjs",
        {
            "layers.simpleRNN": single(RNN),
            "layers.lstm": single(LSTM),
            "layers.gru": single(BEFORE),
        },
    ),
    "brain.js": Framework(
        ("npm:brain.js",),
        "brainjs",
        {"RNN": single(Layer(RELU)), "LSTM": single(LSTM), "GRU": single(BEFORE)},
    ),
    "onnxruntime": forward("onnxruntime"),
    "OpenVINO": forward("openvino", ('{"INFERENCE_PRECISION_HINT": "f32"}', "{}")),
    "OpenVINO, asked for float32": forward("openvino"),
    "tract": forward("tract"),
}
