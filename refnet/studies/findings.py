"""What the pages say of the studies' runs, beside what the papers print: by study, each sentence
with the claims that the rows must bear out (``refnet.studies.comparison``).

Checked by: tests/studies/test_findings.py.
"""

from functools import partial

from refnet.studies.comparison import (
    Claim,
    Finding,
    Quantity,
    above,
    ahead,
    below,
    between,
    near,
    slower,
    solved,
)
from refnet.studies.grid import accuracy, last_accuracy
from refnet.studies.quantities import (
    below_radius_1,
    best,
    characters,
    examples_until_learning,
    final,
    gain_after,
    last_gain,
    lost,
    middle,
    spectrum_end,
)

__all__ = [
    "ADDING",
    "BRIEF",
    "ENDS",
    "FADED",
    "FINDINGS",
    "FIRST",
    "GATED",
    "HELD",
    "LONG",
    "MORE",
    "MOST",
    "PIXELS",
    "PRIOR",
    "PTB",
    "PULLED",
    "RIGID",
    "SHORT",
    "START",
    "STEP",
    "WHOLE",
]

# questions of the study causes
SHORT = "temporal order, SRNN, T = 20"
START = "temporal order, SRNN+OINIT, T = 20"
LONG = "temporal order, SRNN+OINIT, T = 120"
BRIEF = "adding, SRNN+OINIT, T = 10"
ADDING = "adding, SRNN+OINIT, T = 100"
ENDS = "adding, SRNN+OINIT, T = 100, 100,000 iterations"
FIRST = "random permutation, SRNN+OINIT, T = 100"
PIXELS = "MNIST by pixels, SRNN+OINIT"
MORE = "MNIST by pixels, SRNN+OINIT, 100,000 iterations"
MOST = "MNIST by pixels, SRNN+OINIT, 1,000,000 iterations"
FADED = "MNIST by pixels, LSTM of Le et al., 20,000 iterations"
RIGID = "MNIST by pixels, margin 0, 20 epochs"
WHOLE = "MNIST by pixels, margin 0, 120 epochs"
GATED = "MNIST by pixels, LSTM, 10 epochs"
PTB = "Penn Treebank to 75 characters, margin 0, 20 epochs"
PRIOR = "copy, T = 200, a prior of .1 on the spectrum"
HELD = "copy, T = 500, a penalty on W'W - I, factorised"
PULLED = "copy, T = 200, a prior on the spectrum"
STEP = 10
"""From one length of Table I to the next."""

_MARGIN_0, _TABLE_3 = f"{RIGID}: as recorded in Table 1", f"{PTB}: as recorded in Table 3"
_LSTM = f"{GATED}: as recorded in Table 1"


def _above_printed(
    label: str, printed: float, least: float, most: float, figure: Quantity = accuracy
) -> tuple[Claim, Claim]:
    """The accuracy is that many percentage points above the printed one."""
    return between(figure, label, printed + least, printed + most)


_CAUSES = (
    Finding(
        "plain rate",
        "At .01, the rate that Table I prints for the plain net, SGD, which the "
        "text names, solves T = 20. RMSprop, which the released code takes by default, does "
        "not get half of the answers right in 20,000 iterations; at .001 and .0001 it solves "
        "T = 20.",
        (
            solved(f"{SHORT}: SGD at .01 (text)", 20_000),
            below(accuracy, f"{SHORT}: RMSprop at .01 (code)", 50),
            solved(f"{SHORT}: RMSprop at .001", 20_000),
            solved(f"{SHORT}: RMSprop at .0001", 20_000),
        ),
    ),
    Finding(
        "OINIT's rate",
        "At .0001, the rate printed for OINIT, the code's RMSprop solves T = 20"
        " more than ten times as fast as the text's SGD, which starts with W_hh alone made "
        "orthogonal.",
        (slower(f"{START}: SGD at .0001 (text)", f"{START}: RMSprop at .0001 (code)", 10),),
    ),
    Finding(
        "T = 120",
        "With OINIT at T = 120 less than half of the answers are right after 8,000 "
        "iterations (Table I allows 100,000): with RMSprop at .001, .0001 and .00001, with SGD "
        "at .01 and .0001, and whether all matrices or W_hh alone are made orthogonal. With "
        "W_hh alone made orthogonal and W_xh from N(0, .01) the task is solved. From the "
        "published start the inputs take the mean slope of tanh below 1, and over 120 steps "
        "the gradient is lost on its way back (last table).",
        (
            *(
                below(accuracy, f"{LONG}: {name}", 50)
                for name in (
                    "RMSprop at .0001 (code)",
                    "RMSprop at .001",
                    "RMSprop at .00001",
                    "RMSprop at .0001, W_hh alone made orthogonal",
                    "SGD at .0001 (text)",
                    "SGD at .01",
                )
            ),
            solved(f"{LONG}: RMSprop at .0001, W_xh from N(0, .01)", 8_000),
        ),
    ),
    Finding(
        "adding, T = 10",
        "Table I's ladder of adding begins at T = 10. With OINIT and the "
        "printed .01 RMSprop, which the code takes by default, has there more than a tenth of "
        "the answers wrong after 20,000 iterations. The code's SGD solves the task by the "
        "criterion of the code; by that of the text more than nine in ten of its answers are "
        "wrong. So ours can have 0 for the optimiser under one protocol and for the criterion "
        "under the other, where 80 to 100 are printed; the study table-i-sgd climbs the ladder "
        "with SGD.",
        (
            above(best("errors_code"), f"{BRIEF}: RMSprop at .01 (code)", 1000),
            solved(f"{BRIEF}: the code's SGD at .01", 20_000),
            above(final("errors_text"), f"{BRIEF}: the code's SGD at .01", 9000),
        ),
    ),
    Finding(
        "random permutation",
        "Random permutation with OINIT at the printed rate of .1: "
        "RMSprop, each of whose steps moves every weight by about the rate, solves T = 100. "
        "SGD has more than 99% of the answers right after 30,000 iterations, but less than 60% "
        "with the penalty that the code adds by default. Table I prints T = 240, and no "
        "lambda, for OINIT.",
        (
            solved(f"{FIRST}: RMSprop at .1 (code)", 30_000),
            above(accuracy, f"{FIRST}: the code's SGD at .1", 99),
            below(accuracy, f"{FIRST}: the code's SGD at .1, with its default penalty of .1", 60),
        ),
    ),
    Finding(
        "adding, T = 100",
        "In adding at T = 100 the mean squared error stays for 8,000 "
        "iterations above nine tenths of that of always answering the mean: with RMSprop at "
        ".01, .001 and .0001 and with SGD at .01, for the sum and for half of it. With W_xh "
        "from N(0, .01) it falls below.",
        (
            *(
                above(best("mse", 24), f"{ADDING}: {name}", 0.9)
                for name in (
                    "RMSprop at .01 (code)",
                    "RMSprop at .001",
                    "RMSprop at .0001",
                    "SGD at .01, criterion of the code",
                )
            ),
            above(best("mse", 6), f"{ADDING}: SGD at .01, on the sum (text)", 0.9),
            below(
                best("mse", 24),
                f"{ADDING}: SGD at .01, criterion of the code, W_xh from N(0, .01)",
                0.9,
            ),
        ),
    ),
    Finding(
        "optimiser of pixels",
        "MNIST by pixels after 5,000 iterations at Table II's .00001: "
        "SGD, which the text names for the synthetic problems, has less than a quarter of the "
        "answers right (and W_hh alone made orthogonal, as in the text), RMSprop with the same "
        "pixels more than two fifths.",
        (
            below(accuracy, f"{PIXELS}: SGD at .00001, from 0 to 1 (text)", 25),
            above(accuracy, f"{PIXELS}: RMSprop at .00001, from 0 to 1", 40),
        ),
    ),
    Finding(
        "scale of pixels",
        "MNIST by pixels: from 0 to 1 they are ahead of the code's "
        "standardised ones by more than ten percentage points after 5,000 iterations, where "
        "ten times the printed rate gains less, and by more than fifteen after 100,000. After "
        "a million OINIT with them has passed the printed 86.81% by some four, where in Table "
        "II, with standardised ones, it ends some twelve below. The text does not say how "
        "pixels are scaled; neither scale gives the printed number.",
        (
            ahead(
                accuracy,
                f"{PIXELS}: RMSprop at .00001, from 0 to 1",
                f"{PIXELS}: RMSprop at .00001, standardised (code)",
                10,
            ),
            ahead(
                accuracy,
                f"{PIXELS}: RMSprop at .00001, standardised (code)",
                f"{PIXELS}: RMSprop at .0001, standardised",
                -10,
            ),
            ahead(
                accuracy,
                f"{MORE}: RMSprop at .00001, from 0 to 1",
                f"{MORE}: RMSprop at .00001, standardised (code)",
                15,
            ),
            *_above_printed(f"{MOST}: RMSprop at .00001, from 0 to 1", 86.81, 3, 5),
        ),
    ),
    Finding(
        "start of the LSTM",
        "The LSTM in Figure 3a of Manchev & Spratling, for which the text "
        "names no start: with weights from N(0, .001), the start of their other nets, it "
        "always gives the same answer, 11.35%. Its forget gates let .73 of a cell through at "
        "each step, the last rows of an image are empty, and of the little that so small "
        "weights let in nothing is left at its end. By Glorot's rule it has more than 40% of "
        "the answers right within the same 20,000 iterations.",
        (
            below(accuracy, f"{FADED}: weights from N(0, .001)", 11.4),
            above(accuracy, f"{FADED}: weights by Glorot's rule", 40),
        ),
    ),
    Finding(
        "margin 0",
        "Table 1 of Vorontsov et al. at a margin of 0, where ours ends some six "
        "percentage points below the printed number: after 20 of the 120 epochs clipping at "
        "every step, a learned start state, U and V that stay where they are, all of the "
        "released code together, and no weight decay are within two points of the recorded "
        "run, ten times the printed rate and pixels that are standardised each more than three "
        "ahead.",
        (
            *(
                claim
                for name in (
                    "clipped at every step (code)",
                    "a start state that is learned (code)",
                    "U and V fixed (code)",
                    "no weight decay",
                    "all of the code",
                )
                for claim in near(accuracy, f"{RIGID}: {name}", _MARGIN_0, 2)
            ),
            *(
                ahead(accuracy, f"{RIGID}: {name}", _MARGIN_0, 3)
                for name in ("ten times the rate", "pixels standardised")
            ),
        ),
    ),
    Finding(
        "margin 0, to the end",
        "After all 120 epochs the net with standardised pixels is "
        "within one percentage point of the 77.18% that is printed, and ends more than two "
        "below its best accuracy on the validation set. Their scale can be the cause of the "
        "distance if the authors' differed from that of the file which their released code "
        "reads, pixels over 256.",
        (
            *_above_printed(f"{WHOLE}: pixels standardised", 77.18, -1, 1),
            above(lost, f"{WHOLE}: pixels standardised", 2),
        ),
    ),
    Finding(
        "LSTM, ten epochs",
        "The LSTM of Table 1 of Vorontsov et al. after ten of its 150 "
        "epochs: clipped at every step, as the code's other nets, it is behind at its best and "
        "ends more than thirty percentage points below that; at ten times the printed rate it "
        "has less than half of the answers right; standardised pixels are ahead by less than "
        "five.",
        (
            ahead(accuracy, _LSTM, f"{GATED}: clipped at every step", 0),
            above(lost, f"{GATED}: clipped at every step", 30),
            below(accuracy, f"{GATED}: ten times the rate", 50),
            ahead(accuracy, f"{GATED}: pixels standardised", _LSTM, 0),
            ahead(accuracy, _LSTM, f"{GATED}: pixels standardised", -5),
        ),
    ),
    Finding(
        "Penn Treebank",
        "Table 3 of Vorontsov et al. at a margin of 0: after 20 of its 200 "
        "epochs the released code's embedding, a W_xh of two factors through 512 units, is "
        "more than six percentage points ahead of the recorded run. A sequence's losses added,"
        " where the code averages them, lines of all lengths mixed, as in the code, and no "
        "weight decay are within five, a loss in bits, Cayley steps at a thousand times their "
        "rate, and U and V that stay where they are within two. The text does not name the "
        "embedding. The study table-3-code trains with it to the end.",
        (
            ahead(accuracy, f"{PTB}: embedding of 512 (code)", _TABLE_3, 6),
            *(
                claim
                for name, most in (
                    ("losses of a sequence added", 5),
                    ("lines of all lengths mixed", 5),
                    ("no weight decay", 5),
                    ("a loss in bits (code)", 2),
                    ("Cayley steps at .001", 2),
                    ("U and V fixed (code)", 2),
                )
                for claim in near(accuracy, f"{PTB}: {name}", _TABLE_3, most)
            ),
        ),
    ),
    Finding(
        "prior with SGD",
        "Figure 4, a prior on the singular values: SGD at the printed .00001 "
        "on the loss averaged over the steps, as the code has it, does not get a third of the "
        "symbols right in 20,000 iterations, nor at ten times the rate, nor with the code's "
        "inputs in one channel, nor with the code's SGD, which has Nesterov's momentum of .9 "
        "and clips at every step. With a sequence's losses added it gets more than 80%, and "
        "solves the task if gradients are also clipped at every step, as in the code, instead "
        "of by their norm. The study figure-4 does both. RMSprop, as in Figure 1, needs "
        "neither.",
        (
            *(
                below(accuracy, f"{PRIOR}: {name}", 100 / 3)
                for name in (
                    "SGD at .00001 (text)",
                    "SGD at .0001",
                    "inputs in one channel (code)",
                    "Nesterov's momentum of .9, clipped at every step (code)",
                )
            ),
            above(accuracy, f"{PRIOR}: losses of a sequence added", 80),
            *(
                solved(f"{PRIOR}: {name}", 20_000)
                for name in (
                    "losses of a sequence added, clipped at every step (code)",
                    "RMSprop at .0001 (Figure 1)",
                )
            ),
        ),
    ),
    Finding(
        "strength of the penalty",
        "Figure 4, the penalty on the factorised net at T = 500: at "
        "a strength of 1 the net learns more than twice as fast as at 100, at 10,000 and "
        "without any. The text does not name its "
        "strengths; those of the study figure-4 begin at 1.",
        tuple(
            slower(f"{HELD}: lambda = {slow}", f"{HELD}: lambda = 1", 2)
            for slow in ("10,000", "100", "0")
        ),
    ),
    Finding(
        "strength of the prior",
        "Figure 4, the prior on the singular values, where losses are "
        "added over 220 steps: at a strength of 1,000 (beside a mean over the steps this would "
        "be one of 4.5) the net takes more than twice as long as at 1, the strongest of "
        "the study figure-4. The text says of a prior that is too strong that it slows "
        "learning.",
        (slower(f"{PULLED}: strength 1,000", f"{PULLED}: strength 1", 2),),
    ),
)

_EPOCHS = Finding(
    "epochs",
    "Images are shuffled in every epoch, and tested on after each; the code"
    " keeps the order of the file, and tests six times as often.",
)

_MANCHEV = {
    "table-iii": (
        _EPOCHS,
        Finding(
            "rate of FF", "The text prints no rate for FF; here it has that of the others, .01."
        ),
    ),
    "table-iv": (
        Finding(
            "best or last",
            "The text does not say whether its accuracies are the best or those"
            " at the end; at alpha = 0.1 the printed one is nearer to that at the end.",
            (above(middle, "alpha = 0.1", 91.40),),
        ),
        _EPOCHS,
        Finding(
            "lowest rate",
            "The nets have not converged at alpha = 1e-05: the last epoch still "
            "adds to their accuracy.",
            (above(last_gain, "alpha = 1e-05", 0),),
        ),
    ),
    "table-i": (
        Finding(
            "lengths by the code",
            "With the code's default optimiser, RMSprop, SRNN+OPEN goes "
            "beyond the printed length on temporal order, and the plain SRNN does not reach "
            "the printed ones on either version.",
            (
                above(float, "temporal-order, open", 80, STEP),
                below(float, "temporal-order, plain", 50, STEP),
                below(float, "temporal-order-3bit, plain", 50, STEP),
            ),
        ),
    ),
    "table-i-text": (
        Finding(
            "lengths by the text",
            "On temporal order SRNN+OPEN ends at the printed length, the"
            " plain SRNN ten below, and SRNN+OINIT at half of it. On the 3-bit problem the "
            "plain one and SRNN+OINIT end thirty and twenty below, SRNN+OPEN twenty above; on "
            "random permutation SRNN+OINIT ends at a sixth of its length.",
            tuple(
                claim
                for cell, length in (
                    ("temporal-order, open", 80),
                    ("temporal-order, plain", 40),
                    ("temporal-order, oinit", 60),
                    ("temporal-order-3bit, open", 90),
                    ("temporal-order-3bit, plain", 20),
                    ("temporal-order-3bit, oinit", 70),
                    ("random-permutation, oinit", 40),
                )
                for claim in between(float, cell, length - 5, length + 5)
            ),
        ),
    ),
    "table-ii": (
        Finding(
            "nets of Le et al.",
            "Of the nets of Le et al. the text gives the LSTM's rate and "
            "forget bias, the clipped SRNN's rate, and that both are clipped; the norms to clip"
            " at and the IRNN's rate are taken to be those of Le et al. (2015, 4.2), which was "
            "not checked. The LSTM starts by Glorot's rule: the study causes has a run from "
            "N(0, .001), the start of the other nets. The text has its nets come close to the "
            "IRNN of that paper: this is not that result.",
        ),
        Finding(
            "rate of SRNN",
            "The text prints no rate for the plain SRNN; here it is SRNN+OPEN's, .0001.",
        ),
        Finding(
            "first examples",
            "The text has SRNN+OINIT leave 11.35% after about 60,000 "
            "examples. Here SRNN+OPEN does so between 48,000 and 64,000; SRNN+OINIT is above "
            "25% at its first test, after 16,000.",
            (
                *between(examples_until_learning, "SRNN+OPEN", 48_000, 64_001),
                above(lambda row: 100 * row["curve"]["accuracy"][0], "SRNN+OINIT", 25),
            ),
        ),
        Finding(
            "LSTM",
            "The text has SRNN+OINIT and SRNN+OPEN outperform the LSTM, whose data it "
            "takes from Le et al. Here the LSTM is at its best less than one percentage point "
            "from SRNN+OPEN, and more than ten above SRNN+OINIT.",
            (
                *near(accuracy, "LSTM of Le et al.", "SRNN+OPEN", 1),
                ahead(accuracy, "LSTM of Le et al.", "SRNN+OINIT", 10),
            ),
        ),
        Finding(
            "order", "Images are shuffled in every epoch; the code keeps the order of the file."
        ),
    ),
}

_AT_THE_END = tuple(
    above(partial(spectrum_end, margin=float(margin)), f"margin {margin}, orthogonal", 0.99)
    for margin in ("0.001", "0.01")
)
_SHIFTED = Finding(
    "mean singular value",
    "As the text has it, the mean of the singular values "
    "shifts to about 1.05 from an orthogonal start with a margin of .1 or 1 or "
    "without one.",
    tuple(
        claim
        for margin in ("0.1", "1", "none")
        for claim in between(final("s_mean"), f"margin {margin}, orthogonal", 1.04, 1.06)
    ),
)
_ORTHOGONAL = tuple(
    f"margin {margin}, orthogonal" for margin in ("0", "0.001", "0.01", "0.1", "1", "none")
)
_GLOROT, _IDENTITY = "margin none, Glorot normal", "margin none, identity"

_VORONTSOV = {
    "table-5": (
        Finding(
            "processors",
            "The printed times are those of a graphics processor, ours of at most two cores.",
        ),
        Finding(
            "ratios",
            "Our ratios are smaller. The released code inverts a matrix in each step "
            "of geoSGD, where refnet, at the printed rate of 1e-6, needs products alone: that "
            "is one part of it.",
            tuple(
                below(lambda row: row["geosgd"] / row["sgd"], units, printed)
                for units, printed in (("128", 1.84), ("500", 3.45), ("1000", 7.45))
            ),
        ),
    ),
    "figure-1": (
        Finding(
            "no margin",
            "The text has all but the longest sequences solved without a margin. "
            "Here, with 20,000 iterations and gradients clipped by their norm, less than a "
            "fifth of the symbols are right at T = 1000.",
            (below(accuracy, "T = 1000, margin none", 20),),
        ),
    ),
    "figure-4": (
        Finding(
            "unstable",
            "The text has optimisation become unstable without the sigmoid, and "
            "with it once the prior is removed. Here the factorised net solves T = 200 with "
            "the margin of 1 and without one, with the prior and at a strength of 0. A run ends"
            " when its task is solved: whether it would become unstable later is not known.",
            tuple(
                solved(f"prior{margin} T = 200, strength {strength}", 20_000)
                for margin in ("", " with margin 1")
                for strength in ("1", "0.1", "0.01", "0.001", "0.0001", "0")
            ),
        ),
        Finding(
            "no margin",
            "The text names no margin for the factorised net at T = 500; here it has none.",
        ),
        Finding(
            "weak penalties",
            "The text has weaker penalties learn faster. In the factorised "
            "net at T = 500 it is the other way: without a penalty it takes longer than at 1 "
            "and at .1. (Strengths above 1 are a question of the study causes.)",
            tuple(
                slower("factorised T = 500, lambda 0", f"factorised T = 500, lambda {strength}")
                for strength in ("1", "0.1")
            ),
        ),
    ),
    "table-1": (
        Finding(
            "end of the margin",
            "The text has singular values reach the margin only at a very "
            "large rate that does not permit convergence. Here, at the printed rate, the "
            "largest one reaches the margin's end, to a hundredth of the margin, at .001 and "
            ".01.",
            _AT_THE_END,
        ),
        _SHIFTED,
        Finding(
            "distances",
            "A margin of 0, .001 or .01 is almost six to almost eight percentage "
            "points below the printed number, the wider ones one to two. What was tried at a "
            "margin of 0 is under the study causes; at the others nothing was.",
            tuple(
                claim
                for label, printed, least, most in zip(
                    _ORTHOGONAL,
                    (77.18, 79.26, 85.47, 94.10, 93.84, 93.24),
                    (-8,) * 3 + (-2,) * 3,
                    (-5.5,) * 3 + (-0.9,) * 3,
                )
                for claim in _above_printed(label, printed, least, most)
            ),
        ),
        Finding(
            "identity",
            "From the identity ours is almost fourteen percentage points above the "
            "printed number; at the end its accuracy on the validation set is still almost "
            "eight above it. Why is not known.",
            (
                *_above_printed(_IDENTITY, 53.53, 13.5, 14),
                *_above_printed(_IDENTITY, 53.53, 7.5, 8, last_accuracy),
            ),
        ),
        Finding(
            "fall",
            "From the identity and from Glorot's start the accuracy on the validation "
            "set ends more than five percentage points below its best, from an orthogonal "
            "start less than three. The numbers in the table are the test set's at the best "
            "one.",
            (
                *(above(lost, label, 5) for label in (_GLOROT, _IDENTITY)),
                *(below(lost, label, 3) for label in _ORTHOGONAL),
            ),
        ),
        Finding(
            "LSTM",
            "The LSTM is almost six percentage points below the printed number, and "
            "still learns at the end of its 150 epochs: the last fifty add more than three on "
            "the validation set. What was tried is under the study causes.",
            (
                *_above_printed("LSTM", 97.3, -6, -5.5),
                above(partial(gain_after, iteration=100_000), "LSTM", 3),
            ),
        ),
    ),
    "table-2": (
        Finding(
            "distances",
            "From orthogonal starts all margins are within about a percentage "
            "point of the printed numbers. The LSTM is about two below, and Glorot's start "
            "almost five; the identity is four above, and ends less than two below its best on "
            "the validation set. None of the three has come to rest: the best of the last "
            "third of a run is on the validation set more than one percentage point above that "
            "of the first two for the LSTM, and more than two for the others.",
            (
                *(
                    claim
                    for label, printed in zip(
                        _ORTHOGONAL, (83.56, 84.59, 89.63, 91.44, 90.83, 90.51)
                    )
                    for claim in _above_printed(label, printed, -1.1, 1.1)
                ),
                *_above_printed("LSTM", 92.62, -2.5, -1.5),
                *_above_printed(_GLOROT, 79.33, -5, -4.5),
                *_above_printed(_IDENTITY, 42.72, 3.5, 4.5),
                below(lost, _IDENTITY, 2),
                above(partial(gain_after, iteration=100_000), "LSTM", 1),
                *(
                    above(partial(gain_after, iteration=80_000), label, 2)
                    for label in (_GLOROT, _IDENTITY)
                ),
            ),
        ),
        Finding(
            "end of the margin",
            "As in Table 1, and not as the text has it, the largest "
            "singular value reaches the margin's end, to a hundredth of the margin, at .001 "
            "and .01.",
            _AT_THE_END,
        ),
        _SHIFTED,
    ),
    "table-3": (
        Finding(
            "distances",
            "The text has two points more at a margin of 100 than at 0. Here it "
            "is less than half a point, and all are below what is printed, the identity by six "
            "points. Of the causes tried at a margin of 0 (study causes) the code's embedding "
            "moves the number most; with it the study table-3-code makes this table again, and "
            "with the code's other settings.",
            (
                ahead(characters, "margin 100, orthogonal", "margin 0, orthogonal", 0),
                ahead(characters, "margin 0, orthogonal", "margin 100, orthogonal", -0.5),
                *_above_printed(_IDENTITY, 53.83, -6.2, -5.8, characters),
                *(
                    below(characters, label, printed)
                    for label, printed in (
                        ("margin 0, orthogonal", 55.31),
                        ("margin 0.01, orthogonal", 55.33),
                        ("margin 0.1, orthogonal", 55.37),
                        ("margin 1, orthogonal", 57.07),
                        ("margin 100, orthogonal", 57.51),
                        ("margin none, orthogonal", 57.38),
                        (_GLOROT, 57.37),
                    )
                ),
            ),
        ),
    ),
    "table-3-code": (
        Finding(
            "embedding",
            "With the code's embedding, and its losses in nats, a margin of 0 gets"
            " more characters right than printed, by more than two percentage points; without "
            "it (study table-3) fewer. Neither gives the printed number.",
            (above(characters, "margin 0, orthogonal, in nats", 57.31),),
        ),
    ),
    "figure-5": (
        Finding(
            "baseline",
            "The baseline, the error of always answering the mean, is 1/6 for the "
            "text's target, the sum, and 1/24 for the code's, half of it.",
        ),
    ),
    "appendix": (
        Finding(
            "OPLU", "The text has OPLU work as well with all margins; here each task has it at one."
        ),
    ),
}

_GATED = "copy T = 80, "
_OTHERS = {
    "left-open": (
        Finding(
            "rate",
            "OINIT and OPEN together have the rate that Table I has for OINIT, a tenth of OPEN's.",
        ),
        Finding(
            "gated nets",
            "No gated net solves copy at T = 80 in 30,000 iterations. The LSTM "
            "has more of its symbols right from a chain than from an orthogonal matrix, with "
            "ramp gates or without; the GRU from a chain with ramp gates than from either of "
            "the other starts.",
            (
                *(
                    below(accuracy, f"{_GATED}{cell}, {start}", 99)
                    for cell in ("lstm", "gru")
                    for start in ("orthogonal", "chain", "chain with ramp gates")
                ),
                *(
                    ahead(accuracy, f"{_GATED}{more}", f"{_GATED}{less}", 0)
                    for more, less in (
                        ("lstm, chain", "lstm, orthogonal"),
                        ("lstm, chain with ramp gates", "lstm, orthogonal"),
                        ("gru, chain with ramp gates", "gru, orthogonal"),
                        ("gru, chain with ramp gates", "gru, chain"),
                    )
                ),
            ),
        ),
        Finding(
            "own settings",
            "Of their own the gated nets have tanh, where the protocol has elu,"
            " and ten times its rate. The D of D o S is drawn uniformly between .5 and 1.5: the"
            " text says only that it is random.",
        ),
    ),
    "examples": (
        Finding(
            "solved",
            "Orthogonal pre-training (OINIT) and the orthogonality penalty (OPEN) "
            "solve temporal order at T = 60. As long as OPEN has the spectral radius of the "
            "recurrent matrix below 1, less than 30% of the answers are right.",
            (
                solved("temporal order T = 60, oinit", 100_000),
                solved("temporal order T = 60, open", 100_000),
                below(below_radius_1, "temporal order T = 60, open", 30),
            ),
        ),
        Finding(
            "own settings",
            "The nets of temporal order have the protocol's optimiser, the rate"
            " .0001 for all, the squared penalty of the text, and OINIT for W_hh alone as in "
            "the text. The LSTM has 64 units, Adam at .002, and the adding task of Vorontsov "
            "et al.",
        ),
    ),
}

FINDINGS: dict[str, tuple[Finding, ...]] = {"causes": _CAUSES, **_MANCHEV, **_VORONTSOV, **_OTHERS}
