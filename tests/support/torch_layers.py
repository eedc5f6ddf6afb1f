"""PyTorch's own check of a layer's gradients."""

import torch


def gradchecks(layer, x, *starts):
    """Whether differences confirm the gradients in x, the initial states and all parameters."""
    names = [name for name, _ in layer.named_parameters()]

    def function(x, *values):
        states, values = values[: len(starts)], values[len(starts) :]
        hx = (states if len(states) > 1 else states[0],) if states else ()
        outputs, end = torch.func.functional_call(layer, dict(zip(names, values)), (x, *hx))
        return outputs, *(end if isinstance(end, tuple) else (end,))

    inputs = [
        value.detach().clone().requires_grad_() for value in (x, *starts, *layer.parameters())
    ]
    return torch.autograd.gradcheck(function, inputs, fast_mode=True)
