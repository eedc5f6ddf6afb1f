"""Where the papers' texts and released codes differ, and where refnet follows neither."""

from refnet.runs.rows import table
from refnet.training.config import applicable
from refnet.training.papers import PROTOCOLS
from refnet.training.protocols import preset

APART = """
On the Penn Treebank without a margin Vorontsov et al.'s code has a spectrum_factor of 1.

refnet does not follow the released codes in these points:

- Vorontsov et al. move U and V by steps along A = G'W - W'G, which is not a direction of descent,
  and start every step where U and V began (errata 31 and 44 of `refnet errata`). U and V never move
  further than one step of rate 1e-6, so the protocol has a rate of 0. Their OPLU returns its input
  unchanged.
- In the last release of Vorontsov et al.'s code, four things fail: adding, PReLU, the net without
  the factors U and V, and the Penn Treebank (the code asks for its batches with an argument that
  they do not take). The code also has no LSTM. For these the protocol has what the code was meant
  to do. Runs without a margin, and Glorot's and the identity's starts, follow the text: the code's
  spectrum always starts at 1, whatever the spectrum of the start is.
- Vorontsov et al.'s code uses Nesterov's SGD with a momentum of .9. Figure 4's runs with a prior
  use the text's SGD; the study causes has a run with the code's.
- Vorontsov et al. and Keras raise probabilities to at least 1e-7 before the logarithm, so the
  gradient of a symbol below it is 0. refnet's cross-entropy follows the formula.
- Scores. Vorontsov et al. log an epoch's mean on the training batches of generated tasks and do not
  stop when a task is solved; refnet tests on fresh sequences. Of several best weights they take the
  last and refnet the first. On the Penn Treebank they choose by an accuracy that counts the last
  two steps of a line, whose answer is always 0. The loss that refnet records includes the weight
  decay and penalties.
- Averages. Manchev & Spratling log the mean of the gradient's norm over 100 iterations; refnet logs
  the norm over all parameters in the last iteration. Pixel by pixel, Figure 3b has the norm of
  W_hh's gradient, a sixteenth of the mean over 1000 iterations, because their code divides by the
  number of images. Vorontsov et al. average batches by their number of lines, refnet by their
  number of characters.
- Images. Vorontsov et al. divide pixels by 256 and draw another permutation in every run; refnet
  divides them by 255 and uses one permutation.
- Tables II to IV of Manchev & Spratling are recorded with images shuffled in every epoch, and III
  and IV with a test after each epoch. Their code tests after every 10,000 examples, and the best of
  so many tests is a little higher. Table 3 of Vorontsov et al. is recorded with lines of similar
  length together (order shuffled), although both protocols mix lines of all lengths; so is the row
  "in nats" of the table by their code, whose U and V move.
- Units. In Vorontsov et al.'s code the Penn Treebank's loss is in bits. Here it is in nats. The
  protocol's weight decay and clipping are ln 2 times the code's, and RMSprop's eps is (ln 2)^2
  times the code's, so the steps are the same.
- Precision. Manchev & Spratling's code computes in float64. refnet computes in float32 unless told
  otherwise.
- Their OINIT makes one more update after the cost is below its threshold; refnet's does not. The
  update is of the order of the root of that cost.
- Limits on iterations. Manchev & Spratling's code allows 1,000,000 iterations on the synthetic
  problems, where the text has 100,000; 200 epochs on MNIST, where the text has 100; and 1,000,000
  iterations pixel by pixel. Both protocols take the text's limits, and its batches of 16 pixel by
  pixel, where the code's default is 20.
- Manchev & Spratling's code for the synthetic problems includes the penalty by default (--reg .1),
  even with OINIT. Their Table I gives no lambda for OINIT, and here OINIT has no penalty.
"""
"""What no protocol has, to be read beneath ``differences``."""

_METHODS = ("plain", "oinit", "open")


def differences() -> str:
    """A table of the settings in which each paper's text and its released code differ, made from
    the rules. Methods of Manchev & Spratling are named where not all of them differ.

    >>> differences().splitlines()[0].split("|")[1].strip()
    'authors'
    """
    tables: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for authors in ("manchev-spratling", "vorontsov"):
        methods = _METHODS if authors == "manchev-spratling" else _METHODS[:1]
        for task in PROTOCOLS[f"{authors}/text"][0]:
            for method in methods:
                text, code = (
                    applicable(preset(task, method=method, protocol=f"{authors}/{kind}"))
                    for kind in ("text", "code")
                )
                for name in text:
                    pair = [str(side[name]) for side in (text, code)]
                    if len({value.partition(":")[0] for value in pair}) == 1:
                        pair = [value.partition(":")[2] or value for value in pair]
                    if name != "protocol" and pair[0] != pair[1]:
                        cells = tables.setdefault((authors, name, *pair), {})
                        cells.setdefault(task, []).append(method)
    rows = [
        [
            *key,
            ", ".join(
                task
                + (
                    f" ({' and '.join(methods)})"
                    if methods not in (list(_METHODS), ["plain"])
                    else ""
                )
                for task, methods in cells.items()
            ),
        ]
        for key, cells in tables.items()
    ]
    return table(["authors", "setting", "text", "code", "in"], rows)
