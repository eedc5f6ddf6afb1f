"""PyTorch's RNNCell, LSTMCell and GRUCell, step by step."""

import torch


def gradients(p, x, y):
    """The loss, the outputs, the states and every gradient, by name."""
    (rows, H), (C, _), D = p["Whh"].shape, p["Why"].shape, x.shape[2]
    nn, (p, x) = torch.nn, ({n: torch.from_numpy(v) for n, v in p.items()}, torch.from_numpy(x))
    kind = {1: nn.RNNCell, 3: nn.GRUCell, 4: nn.LSTMCell}[rows // H]
    cell, head = kind(D, H).to(x.dtype), nn.Linear(H, C).to(x.dtype)
    second = torch.zeros(rows, dtype=x.dtype)
    if "bhn" in p:
        second[2 * H :] = p["bhn"]
    weights = {"weight_ih": p["Wxh"], "weight_hh": p["Whh"], "bias_ih": p["bh"]}
    cell.load_state_dict({**weights, "bias_hh": second})
    head.load_state_dict({"weight": p["Why"], "bias": p["by"]})
    x.requires_grad_()
    h = torch.zeros(x.shape[1], H, dtype=x.dtype)
    state, states = (h, h) if rows == 4 * H else h, [h]
    for step in x:
        state = cell(step, state)
        states.append(state[0] if rows == 4 * H else state)
    h = torch.stack(states)
    outputs = head(h[1:] if y.ndim == 2 else h[-1])
    labels = torch.from_numpy(y).reshape(-1)
    loss = torch.nn.functional.cross_entropy(outputs.reshape(-1, C), labels)
    loss.backward()
    results = {
        "loss": loss,
        "outputs": outputs,
        "h": h,
        "dx": x.grad,
        "dWxh": cell.weight_ih.grad,
        "dWhh": cell.weight_hh.grad,
        "dbh": cell.bias_ih.grad,
        "dWhy": head.weight.grad,
        "dby": head.bias.grad,
    }
    if "bhn" in p:
        results["dbhn"] = cell.bias_hh.grad[2 * H :]
    return results
