"""A tanh recurrent net of one layer, read at its last step, in PyTorch, for the judge:

    refnet check function mine.py:gradients

It gets p, a dict of NumPy arrays with Whh (H, H), Wxh (H, D), bh (H,), Why (C, H) and by (C,); x
(T, B, D); y (B,), classes; no mask; and returns what it computed by name. If yours computes
another net, options such as --cell and --layers say which.
"""

import torch


class Net(torch.nn.Module):
    """A recurrent layer, read at the last step."""

    def __init__(self, D, H, C):
        super().__init__()
        self.rnn = torch.nn.RNN(D, H)
        self.head = torch.nn.Linear(H, C)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h[-1])


def gradients(p, x, y):
    """The loss, the outputs and every gradient, by name."""
    tensors = {name: torch.from_numpy(value) for name, value in p.items()}
    x, y = torch.from_numpy(x).requires_grad_(), torch.from_numpy(y)
    (C, H), D = p["Why"].shape, x.shape[2]
    net = Net(D, H, C).to(x.dtype)
    net.load_state_dict(
        {
            "rnn.weight_ih_l0": tensors["Wxh"],
            "rnn.weight_hh_l0": tensors["Whh"],
            "rnn.bias_ih_l0": tensors["bh"],
            "rnn.bias_hh_l0": torch.zeros(H),
            "head.weight": tensors["Why"],
            "head.bias": tensors["by"],
        }
    )
    outputs = net(x)
    loss = torch.nn.functional.cross_entropy(outputs, y)
    loss.backward()
    return {
        "loss": loss,
        "outputs": outputs,
        "dx": x.grad,
        "dWxh": net.rnn.weight_ih_l0.grad,
        "dWhh": net.rnn.weight_hh_l0.grad,
        "dbh": net.rnn.bias_ih_l0.grad,
        "dWhy": net.head.weight.grad,
        "dby": net.head.bias.grad,
    }
