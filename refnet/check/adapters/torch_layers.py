"""PyTorch's recurrent layers as they are used: stacked, in both directions, batch-first, without
biases or with two, on packed sequences, from given initial states (extra ``torch``).

Checked by: tests/check/test_torch_layers.py.
"""

from typing import Any

import numpy as np

from refnet.batch import Array, Batch, Params, last_steps
from refnet.check.adapters.torch_nets import _array, _loss, _refuse, _tensor, _torch, kind_of
from refnet.nets.recurrent import RecurrentNet
from refnet.nets.stacked import StackedNet

__all__ = ["layer_results", "layer_state_dict"]


def _biases(net: StackedNet, own: Params) -> tuple[Array, Array]:
    """bias_ih and bias_hh of one cell."""
    second = own.get(
        "bhh", np.zeros_like(own["bh"][: 2 * net.hidden] if net.cell == "gru" else own["bh"])
    )
    return own["bh"], np.concatenate([second, own["bhn"]]) if net.cell == "gru" else second


def layer_state_dict(net: StackedNet, params: Params, bias: bool = True) -> dict[str, Any]:
    """The tensors of torch.nn.RNN, LSTM or GRU; bias_hh is zero unless there is a bhh, and of the
    GRU's n it is bhn."""
    found: Params = {}
    for suffix in net.every_cell:
        own = net.of(params, suffix)
        found |= {f"weight_ih{suffix}": own["Wxh"], f"weight_hh{suffix}": own["Whh"]}
        if "Whr" in own:
            found[f"weight_hr{suffix}"] = own["Whr"]
        if bias:
            found |= dict(zip((f"bias_ih{suffix}", f"bias_hh{suffix}"), _biases(net, own)))
    return {name: _tensor(value) for name, value in found.items()}


def _starts(net: StackedNet, params: Params, x: Array, kind: Any) -> tuple[dict[str, Any], Any]:
    """The initial states by refnet's names, and as torch takes them."""
    tensors = {
        f"h0{suffix}": _tensor(cell.initial_state(net.of(params, suffix), x))
        .to(kind)
        .requires_grad_()
        for suffix, cell in net.every_cell.items()
    }
    stacked = _torch().stack(list(tensors.values()))
    if stacked.ndim == 3:
        return tensors, stacked
    h, c = stacked.unbind(1)
    return tensors, (h[..., : net.projection or net.hidden].contiguous(), c.contiguous())


def layer_results(
    net: StackedNet,
    params: Params,
    batch: Batch,
    batch_first: bool = False,
    bias: bool = True,
    dtype: Any = None,
) -> Params:
    """Loss, outputs and gradients of torch's own layer, by refnet's names.

    A mask becomes a packed sequence; each sequence needs a step. ``bias``: False makes the layer
    without biases; bh and bhn have to be zero then, and have no gradients. ``dtype``: what torch
    computes in, such as bfloat16-float32; by default the type of x.
    """
    _refuse(net)
    torch = _torch()
    rnn = torch.nn.utils.rnn
    T, B = batch.x.shape[:2]
    kind = kind_of(batch.x.dtype if dtype is None else dtype)
    plain: RecurrentNet = net  # mypy takes the fields of a subclass for what may be assigned
    options: dict[str, Any] = {"nonlinearity": plain.activation.name} if net.cell == "rnn" else {}
    if net.projection:
        options["proj_size"] = net.projection
    layer = getattr(torch.nn, net.cell.upper())(
        net.inputs,
        net.hidden,
        net.layers,
        bias=bias,
        batch_first=batch_first,
        bidirectional=net.bidirectional,
        **options,
    ).to(kind)
    layer.load_state_dict(layer_state_dict(net, params, bias))
    x = _tensor(batch.x).to(kind).requires_grad_()
    tensors, start = _starts(net, params, batch.x, kind)
    given = x.transpose(0, 1).contiguous() if batch_first else x
    if batch.mask is not None:
        lengths = torch.from_numpy(last_steps(batch.mask))  # torch wants these on the CPU
        given = rnn.pack_padded_sequence(given, lengths, batch_first, enforce_sorted=False)
    h, end = layer(given, start)
    if batch.mask is not None:
        h, _ = rnn.pad_packed_sequence(h, batch_first, total_length=T)
    h = h.transpose(0, 1) if batch_first else h
    end = end[0] if isinstance(end, tuple) else end
    directions = 1 + net.bidirectional
    rows = torch.cat(list(end[-directions:]), dim=1) if net.readout == "last" else h
    head = {
        name: _tensor(params[name]).to(kind).requires_grad_()
        for name in ("Why", "by")
        if net.readout != "none"
    }
    outputs = rows @ head["Why"].T + head["by"] if head else rows
    kept, y = outputs, _tensor(batch.y)
    if batch.mask is not None and net.readout != "last":
        counts = _tensor(batch.mask)
        kept, y = outputs[counts], y[counts]
    loss = (kept * y).sum() if net.loss == "none" else _loss(net, kept, y)
    loss.backward()
    grads = {name: _array(value.grad) for name, value in layer.named_parameters()}
    found = {
        "loss": _array(loss),
        "outputs": _array(outputs),
        "dx": _array(x.grad),
        **{f"d{name}": _array(value.grad) for name, value in {**head, **tensors}.items()},
    }
    for suffix in net.every_cell:
        names = (
            {"Wxh": "weight_ih", "Whh": "weight_hh"}
            | ({"bh": "bias_ih"} if bias else {})
            | ({"Whr": "weight_hr"} if net.projection else {})
        )
        found |= {f"d{own}{suffix}": grads[f"{theirs}{suffix}"] for own, theirs in names.items()}
        if bias:
            second = grads[f"bias_hh{suffix}"]
            H2 = 2 * net.hidden
            if net.cell == "gru":
                found[f"dbhn{suffix}"], second = second[H2:], second[:H2]
            if f"bhh{suffix}" in params:
                found[f"dbhh{suffix}"] = second
    for name in tensors:  # a shared h0 has the sum of the sequences' gradients
        if name in params and params[name].ndim < found[f"d{name}"].ndim:
            found[f"d{name}"] = found[f"d{name}"].sum(axis=-2)
    return found
