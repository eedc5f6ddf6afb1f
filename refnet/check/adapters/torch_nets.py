"""PyTorch (extra ``torch``): its layers judged (stacked, in both directions, batch-first, without
biases or with two, on packed sequences), refnet inside it.

A module of your own is judged with a loss written on refnet's names::

    def loss(p, x, y):                   # tensors: p["Whh"], p["Wxh"], p["bh"], ...
        ...
        return torch.nn.functional.cross_entropy(outputs, y)

    compare(gradients(loss, params, batch), certify(net, params, batch))

Checked by: tests/check/test_torch.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters import framework_errors, summed_over_sequences
from refnet.check.arithmetic import arithmetic
from refnet.interop import as_stack, initial_states
from refnet.interop.torch_weights import (
    ACTIVATIONS,
    LAYER_NAMES,
    Torch,
    array,
    layer_state_dict,
    refuse,
    state_dict,
    tensor,
    torch_package,
)
from refnet.matrices.transitions import transition
from refnet.nets.feedforward import FeedforwardNet
from refnet.nets.gradients import Net
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import HEAD, StackedNet, plain

__all__ = ["gradients", "orthogonal_results", "results", "use_device"]


def use_device(name: str) -> str:
    """Make ``name``, such as cuda, torch's default device, on which all of this then runs, and
    say what it is. Raises ValueError if torch cannot use it."""
    torch = torch_package()
    try:
        torch.zeros(1, device=name).exp()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"torch cannot use the device {name}: {str(error).splitlines()[0]}"
        ) from None
    torch.set_default_device(name)
    return torch.cuda.get_device_name(name) if name.startswith("cuda") else name


def kind_of(dtype: Torch) -> Torch:
    """torch's type for an arithmetic of ``refnet.check.arithmetic``; torch sums bfloat16 and
    float16 in float32, and tf32 is a setting of its own for products of float32."""
    name = arithmetic(dtype).name
    return getattr(torch_package(), "float32" if name == "tf32" else name.removesuffix("-float32"))


def module(net: Net, dtype: Torch) -> Torch:
    """torch's net: ``rnn`` and ``head``, or a Sequential of Linear layers."""
    nn, kind = torch_package().nn, kind_of(dtype)
    if isinstance(net, FeedforwardNet):
        layers: list[Torch] = []
        for before, after in zip(net.widths[:-2], net.widths[1:-1]):
            layers += [nn.Linear(before, after), getattr(nn, ACTIVATIONS[net.activation.name])()]
        return nn.Sequential(*layers, nn.Linear(*net.widths[-2:])).to(kind)
    head = nn.Linear(net.hidden, net.outputs)
    return nn.ModuleDict({"rnn": _layer(as_stack(net, {})[0]), "head": head}).to(kind)


def _layer(net: StackedNet, **options: Any) -> Torch:
    """torch.nn.RNN, LSTM or GRU of a net's sizes."""
    refuse(net)
    plain_net: RecurrentNet = net  # mypy takes the fields of a subclass for what may be assigned
    if net.cell == "rnn":
        options["nonlinearity"] = plain_net.activation.name
    if net.projection:
        options["proj_size"] = net.projection
    return getattr(torch_package().nn, net.cell.upper())(
        net.inputs, net.hidden, net.layers, bidirectional=net.bidirectional, **options
    )


def _scored(net: Net, outputs: Torch, y: Torch) -> Torch:
    """The loss, differentiated."""
    functional, how = torch_package().nn.functional, net.reduction
    if how == "batch_mean" and net.loss != "none":
        raise ValueError("torch's losses reduce by sum or mean; batch_mean is neither")
    flat = outputs.reshape(-1, outputs.shape[-1])
    with framework_errors():
        if net.loss == "none":
            loss = (outputs * y).sum()
        elif net.loss == "cross_entropy":
            loss = functional.cross_entropy(flat, y.reshape(-1), reduction=how)
        else:
            loss = functional.mse_loss(flat, y.reshape(flat.shape), reduction=how)
            loss = loss / (1 if how == "mean" else flat.shape[-1])
        loss.backward()
    return loss


def results(net: Net, params: Params, batch: Batch, dtype: Torch = None, **how: bool) -> Params:
    """Loss, outputs and gradients of torch's own layers, by refnet's names, and the states of one
    layer in one direction without a mask.

    ``dtype``: what torch computes in, such as bfloat16-float32; by default the type of x. A mask
    becomes a packed sequence; each sequence needs a step. ``how``: batch_first, and bias=False,
    which makes layers without biases; bh and bhn have to be zero then, and have no gradients.
    """
    dtype = batch.x.dtype if dtype is None else dtype
    x = tensor(batch.x).to(kind_of(dtype)).requires_grad_()
    if isinstance(net, RecurrentNet):
        stack, stack_params = as_stack(net, params)
        arrays = _layer_results(stack, stack_params, batch, x, **how)
        return arrays if stack is net else {plain(name): value for name, value in arrays.items()}
    layers = module(net, dtype)
    names = {
        f"{2 * (layer - 1)}.{kind}": f"{name}{layer}"
        for layer in range(1, net.depth + 2)
        for kind, name in (("weight", "W"), ("bias", "b"))
    }
    layers.load_state_dict({theirs: tensor(params[name]) for theirs, name in names.items()})
    with framework_errors():
        outputs = layers(x)
    loss = _scored(net, outputs, tensor(batch.y))
    return {
        "loss": array(loss),
        "outputs": array(outputs),
        "dx": array(x.grad),
        **{f"d{names[name]}": array(value.grad) for name, value in layers.named_parameters()},
    }


def _starts(
    net: StackedNet, params: Params, x: Array, kind: Torch
) -> tuple[dict[str, Torch], Torch]:
    """The initial states by refnet's names, and as torch takes them."""
    tensors = {
        name: tensor(value).to(kind).requires_grad_()
        for name, value in initial_states(net, params, x).items()
    }
    stacked = torch_package().stack(list(tensors.values()))
    if stacked.ndim == 3:
        return tensors, stacked
    h, c = stacked.unbind(1)
    return tensors, (h[..., : net.projection or net.hidden].contiguous(), c.contiguous())


def _layer_results(
    net: StackedNet,
    params: Params,
    batch: Batch,
    x: Torch,
    batch_first: bool = False,
    bias: bool = True,
) -> Params:
    torch, mask = torch_package(), batch.mask
    rnn = torch.nn.utils.rnn
    layer = _layer(net, batch_first=batch_first, bias=bias).to(x.dtype)
    layer.load_state_dict(layer_state_dict(net, params, bias))
    tensors, start = _starts(net, params, batch.x, x.dtype)
    given = x.transpose(0, 1).contiguous() if batch_first else x
    if mask is not None:
        lengths = torch.from_numpy(last_steps(mask))  # torch wants these on the CPU
        given = rnn.pack_padded_sequence(given, lengths, batch_first, enforce_sorted=False)
    with framework_errors():
        h, end = layer(given, start)
    if mask is not None:
        h, _ = rnn.pad_packed_sequence(h, batch_first, total_length=len(x))
    h = h.transpose(0, 1) if batch_first else h
    start, end = (pair[0] if isinstance(pair, tuple) else pair for pair in (start, end))
    rows = torch.cat([*end[-1 - net.bidirectional :]], dim=1) if net.readout == "last" else h
    head = {
        name: tensor(params[name]).to(x.dtype).requires_grad_()
        for name in HEAD
        if net.readout != "none"
    }
    with framework_errors():
        outputs = torch.nn.functional.linear(rows, *head.values()) if head else rows
    counted, y = outputs, tensor(batch.y)
    if mask is not None and net.readout != "last":
        counted, y = outputs[tensor(mask)], y[tensor(mask)]
    loss = _scored(net, counted, y)
    arrays = {"loss": array(loss), "outputs": array(outputs), "dx": array(x.grad)}
    if mask is None and len(tensors) == 1:
        arrays["h_l0"] = np.concatenate([array(start), array(h)])
    grads = {name: array(value.grad) for name, value in layer.named_parameters()}
    for suffix in net.every_cell:
        for name, theirs in LAYER_NAMES.items():
            if theirs + suffix in grads:
                arrays[f"d{name}{suffix}"] = grads[theirs + suffix]
        if bias:
            second, H2 = grads[f"bias_hh{suffix}"], 2 * net.hidden
            if net.cell == "gru":
                arrays[f"dbhn{suffix}"], second = second[H2:], second[:H2]
            if f"bhh{suffix}" in params:
                arrays[f"dbhh{suffix}"] = second
    arrays |= {f"d{name}": array(value.grad) for name, value in {**head, **tensors}.items()}
    return summed_over_sequences(arrays, params)


def orthogonal_results(
    net: RecurrentNet, params: Params, batch: Batch, map_name: str
) -> tuple[RecurrentNet, Params, Params]:
    """torch's orthogonal parametrisation of Whh: the net to certify, its parameters, and
    torch's results.

    ``map_name``: matrix_exp, cayley or householder. The first two are refnet's transitions
    expm and cayley at the raw matrix X = ``params["Whh"]`` (torch's Cayley map has -X / 2 for
    refnet's A), so that the gradient in X itself is judged. For householder, whose vectors
    torch scales in its own way, the net is judged at the matrix that torch made.
    """
    torch = torch_package()
    modules = module(net, params["Whh"].dtype)
    modules.load_state_dict(state_dict(net, params))
    layer = modules["rnn"]
    source = torch.nn.Linear(net.hidden, net.hidden, bias=False).to(layer.weight_hh_l0.dtype)
    householder = map_name == "householder"
    with torch.no_grad():
        X = tensor(params["Whh"])
        source.weight.copy_(torch.linalg.qr(X)[0] if householder else X)
    values = {name: value.detach() for name, value in layer.named_parameters()}
    with framework_errors():
        torch.nn.utils.parametrizations.orthogonal(
            source, orthogonal_map=map_name, use_trivialization=householder
        )
        W = source.weight
        W.retain_grad()
        values["weight_hh_l0"] = W
        h, _ = torch.func.functional_call(layer, values, (tensor(batch.x),))
        outputs = modules["head"](h if net.readout == "every" else h[-1])
    loss = _scored(net, outputs, tensor(batch.y))
    rest = {name: value for name, value in params.items() if name != "Whh"}
    if householder:
        return net, {**rest, "Whh": array(W)}, {"loss": array(loss), "dWhh": array(W.grad)}
    raw = source.parametrizations.weight.original
    name, factor = ("expm", 1) if map_name == "matrix_exp" else ("cayley", -2)
    parts = {"Whh.A": array(raw) / factor, "Whh.base": np.eye(net.hidden, dtype=array(W).dtype)}
    theirs = {"loss": array(loss), "dWhh.A": array(raw.grad) * factor}
    return replace(net, transition=transition(name)), {**rest, **parts}, theirs


def gradients(
    loss: Callable[[dict[str, Torch], Torch, Torch], Torch], params: Params, batch: Batch
) -> Params:
    """The loss and its gradients in every parameter and x, by torch's autograd.

    ``loss(p, x, y)``, or ``loss(p, x, y, mask)`` if the batch has a mask, takes and gives tensors;
    p has the parameters by refnet's names. The gradient in one that the loss does not depend on,
    such as a constant part of a transition, is 0, as JAX has it.
    """
    p = {name: tensor(value).requires_grad_() for name, value in params.items()}
    x = tensor(batch.x).requires_grad_()
    final = {name: tensor(value) for name, value in (batch.final or {}).items()}
    given = [*(tensor(part) for part in batch[1:4] if part is not None), *[final] * bool(final)]
    value = loss(p, x, *given)
    value.backward()
    arrays = {
        f"d{name}": np.zeros_like(params[name]) if tensor.grad is None else array(tensor.grad)
        for name, tensor in p.items()
    }
    return {"loss": array(value), **arrays, **({} if x.grad is None else {"dx": array(x.grad)})}
