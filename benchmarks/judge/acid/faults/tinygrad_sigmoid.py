"""tinygrad: the gradient of a gate times tanh is NaN where tanh saturates below

package: tinygrad
known: as https://github.com/tinygrad/tinygrad/pull/1113 (2023, merged; its operator is gone again)
  and https://github.com/tinygrad/tinygrad/pull/3038 (2024, closed); that it came back in products
  is not in its tracker's issues as far as they were searched

`sigmoid` is 1 / (1 + e) with e = exp2(-x / ln 2), and tanh(x) is 2 sigmoid(2x) - 1 (both in
mixin/elementwise.py). The derivative is r r e with r = 1 / (1 + e); where e overflows and r is 0
that is 0 * inf. Rules in uop/symbolic.py turn e / (1 + e) into 1 - r, so sigmoid's own gradient is
right. They match only where e stands beside r in the product: a second sigmoid puts its factors
between them, and the gradient is NaN. So it is in every LSTM whose candidate g is below -44.4 in
float32, or below -354.9 in float64, and then all gradients of its weights are NaN. The forward pass
is right.
"""

from tinygrad import Tensor

for dtype, inputs in (("float32", (-40.0, -45.0)), ("float64", (-350.0, -355.0))):
    for x in inputs:
        gate, g = (Tensor([value], dtype=dtype).realize() for value in (0.5, x))
        theirs = (gate.sigmoid() * g.tanh()).sum().gradient(g)[0].item()
        alone = g.tanh().sum().gradient(g)[0].item()
        print(f"{dtype}, g = {x:g}: sigmoid(.5) tanh(g) has the slope {theirs}, tanh(g) {alone}")
print("right: below 1e-34 at all of them")
