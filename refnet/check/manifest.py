"""What a program in another language must know to recompute the golden vectors."""

from refnet.check.verdict import RULE

__all__ = ["CONVENTIONS"]

CONVENTIONS = {
    "files": {
        "cases": "Every case is written three times with the same arrays: NAME.json, NAME.npz, "
        "NAME.safetensors. Names of arrays start with in. (what to compute from), out. "
        "(results, the float64 nearest to the true value), radius. (the true value is "
        "within it of the stored one, proved) and sigma. (how far rounding in float32 "
        "is expected to carry it, a power of two).",
        "json": "{name, net, arrays: {NAME: {dtype, shape, data}}}; data is flat, in C order "
        "(the last index runs fastest). Numbers are the shortest decimals that give the "
        "same float64; NaN, Infinity and -Infinity are strings.",
        "inputs": "Every in. array of dtype float32 is exact in float32 and in float64.",
        "results": 'Write NAME.json as {dtype: "float32" or "float64", arrays: {loss: {shape: '
        "[], data: [0.5]}, dWhh: {shape, data}, ...}}, or .npz or .safetensors with "
        "arrays of that dtype; no prefix in the names. dtype is what was computed in. "
        "The gradient of every parameter is required; loss, outputs, h, c, dx, dh0 are "
        "judged if they are there. Then: refnet vectors judge DIR THEIRS",
        "rule": RULE,
    },
    "names": {
        "shapes": "T time steps, B examples, D inputs, H hidden units, C outputs, G gates. x (T, "
        "B, D), or (B, D) for a feedforward net. Whh (G H, H), Wxh (G H, D), bh (G H), "
        "Why (C, H), by (C). h (T + 1, B, H) with h[0] = h0; c the same (lstm).",
        "gradients": "dNAME is the gradient of the loss in NAME, of its shape.",
        "h0": "zero unless in.h0 is given: (H), shared by all examples (dh0 is then summed over "
        "them), or (2, H) = [h, c] for the lstm. If it is not given, dh0 is the gradient at "
        "the zero start: (B, H), or (2, B, H).",
    },
    "recurrent": {
        "a[t]": "Wxh x[t] + Whh h[t] + bh for t = 0 .. T - 1, matrices acting on columns",
        "gain": "Whh, Wxh, bh (and bhn, Wpi, Wpf, Wpo) are multiplied by it before use",
        "rnn": "h[t+1] = f(a[t])",
        "lstm": "gates stacked i, f, g, o in blocks of H rows; s is the logistic function: "
        "c[t+1] = s(f) c[t] + s(i) f(g); h[t+1] = s(o) f(c[t+1]). Peepholes Wpi, Wpf, Wpo "
        "(H), where there are any: Wpi c[t] is added to a_i, Wpf c[t] to a_f, Wpo c[t+1] "
        "to a_o",
        "gru": "gates stacked r, z, n: r = s(a_r), z = s(a_z), n = f(Wxh_n x[t] + bh_n + r (Whh_n "
        "h[t] + bhn)); h[t+1] = (1 - z) n + z h[t]; bhn (H)",
        "cifg": "the lstm with s(f) = 1 - s(i), and the gates i, g, o; no Wpf",
        "projection": "of an lstm or cifg: h[t+1] = Whr (s(o) f(c[t+1])), Whr (P, H); Whh is (G H, "
        "P), Why (C, P), and of h0's h the first P entries count (dh0 is 0 beyond)",
        "bhh": "a second bias, added to bh where there is one; (2 H) of the gru: r and z",
        "gru_before": "the same, but n = f(Wxh_n x[t] + bh_n + Whh_n (r h[t])), without bhn",
        "readout": "outputs = Why h + by: last: of the last state, (B, C); every: of h[1] .. "
        "h[T], (T, B, C)",
        "mask": "bool (T, B), true at the first steps of each example. every: masked steps do not "
        "count in the loss. last: each example is read at its own last unmasked step. "
        "States run on through masked steps.",
    },
    "stacked": {
        "what": "layers on top of each other, of one cell or, if bidirectional, of two. Names of "
        "parameters and states end in _l0, _l1, ... and _l0_reverse, ... for the second "
        "direction, but for Why and by.",
        "layer": "A layer's output at step t is [h forward, h reverse], each after its cell has "
        "seen step t; it is the input of the next layer. The lowest layer sees x.",
        "reverse": "runs over each example's own steps from the last to the first, then on over "
        "the steps after its end in the order of time; its states h_l0_reverse are in "
        "that order, from h[0] = h0 on.",
        "mask": "bool (T, B), true at the first steps of each example, which are all that it has: "
        "a layer's output is 0 after them (but states are given as they run on).",
        "readout": "last: of [the forward state after the last step, the reverse state after the "
        "first step] of the top layer; every: of its outputs; none: its outputs "
        "themselves, (T, B, N), without Why and by.",
    },
    "feedforward": "h_0 = x; h_l = f(W_l h_(l-1) + b_l) for l = 1 .. L; outputs = W_(L+1) h_L + "
    "b_(L+1); parameters W1, b1, W2, ...; states h1, h2, ... (B, width). An "
    "activation's own parameters carry the layer's number: slope1, b_mod1.",
    "activations": {
        "kinks": "the derivative at a kink is the left-hand one: relu'(0) = 0",
        "identity": "a",
        "tanh": "tanh(a)",
        "sigmoid": "1 / (1 + exp(-a))",
        "softsign": "a / (1 + |a|)",
        "relu": "max(a, 0)",
        "leaky_relu": "a if a > 0 else alpha a",
        "elu": "a if a > 0 else alpha (exp(a) - 1)",
        "prelu": "a if a > 0 else slope a; slope () is a parameter",
        "oplu": "units 2i and 2i + 1 become (max, min) of the pair; equal ones stay as they are",
        "modrelu": "sign(a) max(|a| + b_mod, 0), 0 at a = 0; b_mod (H) is a parameter",
        "modrelu_pairs": "of units 2i and 2i + 1 as z = a_2i + i a_(2i + 1): z max(|z| + b_mod_i, "
        "0) / |z|, 0 at z = 0; b_mod (H/2) is a parameter",
    },
    "transitions": {
        "what": "null, or what each square matrix (Whh; every gate's by itself as Whh_i, Whh_f, "
        "...; W1, W2, ... of square hidden layers) is made of: parts named Whh.U and so "
        "on are the parameters, any values. skew(A) = L - L' with L the part of A "
        "strictly below the diagonal.",
        "orthogonal": "W = M",
        "product": "W = D * S, entry by entry; dD is 0",
        "svd": "W = U diag(s) V'; margin none: s is a part; margin m > 0: s = 2 m (1 / (1 + "
        "exp(-p)) - 1/2) + 1",
        "expm": "W = e^skew(A) base; dbase is 0",
        "cayley": "W = (I + Y)^-1 (I - Y) base, Y = skew(A); dbase is 0",
        "scaled_cayley": "W = (I + Y)^-1 (I - Y) diag(D), Y = skew(A); dD is 0",
        "householder": "W = H_1 ... H_K diag(D), H = I - 2 v v' / v'v with v the rows of V; dD is "
        "0",
        "schur": "W = P (R + T) P': R of 2 x 2 blocks g [[cos a, -sin a], [sin a, cos a]] along "
        "the diagonal, of T only what is strictly above the diagonal",
        "urnn": "a complex matrix of H/2 rows, of which an entry a + bi is the block [[a, -b], [b, "
        "a]] of W: D3 R2 F* D2 P R1 F D1 / (H/2), D_k = diag(e^(i theta_k)), R_k = I - 2 z z* / "
        "z*z with z = v_k as pairs, F_jk = e^(-2 pi i j k / (H/2)), (P x)_j = x_(order_j), order = "
        "argsort(numpy.random.SeedSequence(seed).generate_state(H/2, numpy.uint64)), seed 0",
        "unitary": "likewise of blocks; column j of M (H, H/2) is complex column j as pairs",
    },
    "losses": {
        "cross_entropy": "of one prediction: log(sum_c exp(v_c)) - v_y; y are classes 0 .. C - 1",
        "squared_error": "of one prediction: sum_c (v_c - y_c)^2 / C",
        "none": "of one prediction: sum_c v_c y_c: y is the cotangent of the outputs",
        "reduction": "the sum over the predictions that count, divided by: sum: 1; mean: their "
        "number; batch_mean: B",
    },
}
