"""Two models as in PyTorch's public examples, on its layers and on refnet's:
``python -m benchmarks.torch_models``.

The language model (examples/word_language_model): an embedding, dropout, a stack of LSTMs, dropout
and a decoder; SGD on pieces of 35 words, the state carried from one to the next, gradients clipped.
The tagger (the tutorial on sequence models): an embedding, an LSTM, here in both directions and on
packed sentences, and a Linear layer. Written anew; the words are random, of a Markov chain.

Both layers start from the same weights and see the same batches. A record has the losses of the
first steps, how far apart they are, and a training step's time, in turns, at PyTorch's better
number of threads; the machine should have nothing else to do.
"""

import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import refnet.torch
from benchmarks.records import Row, options, save
from refnet.common.process import settle
from refnet.runs.rows import environment, machine

STEPS, ROUNDS = 20, 7
"""Losses to compare; turns to time."""
Step = Callable[[], float]


class LanguageModel(nn.Module):
    """The next word's logits, and the state after the last word."""

    def __init__(self, words: int, width: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, hidden, layers, dropout=dropout)
        self.decoder = nn.Linear(hidden, words)
        for part in (self.encoder, self.decoder):
            nn.init.uniform_(part.weight, -0.1, 0.1)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        h, state = self.rnn(self.drop(self.encoder(x)), state)
        return self.decoder(self.drop(h)), state


class Tagger(nn.Module):
    """Every word's tag, of sentences of different lengths (T, B)."""

    def __init__(self, words: int, width: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, bidirectional=True)
        self.tags = nn.Linear(2 * hidden, tags)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embeddings(x), lengths, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], total_length=len(x))
        return self.tags(h)


def chain(rng: np.random.Generator, words: int, T: int, B: int) -> Tensor:
    """B columns of a Markov chain in which every word has four likely followers."""
    follow, x = rng.integers(0, words, (words, 4)), rng.integers(0, words, (T, B))
    for t in range(1, T):
        likely = follow[x[t - 1], rng.integers(0, 4, B)]
        x[t] = np.where(rng.random(B) < 0.9, likely, x[t])
    return torch.from_numpy(x)


def language_model(
    dtype: torch.dtype, words: int = 1000, hidden: int = 200, B: int = 20, piece: int = 35
) -> tuple[nn.Module, Callable[[nn.Module], Step]]:
    """The model, and what makes a function of one that takes a training step and gives its loss."""
    torch.manual_seed(0)
    model = LanguageModel(words, hidden, hidden, layers=2, dropout=0.2).to(dtype)
    text = chain(np.random.default_rng(0), words, 20 * piece + 1, B)

    def training(model: nn.Module) -> Step:
        def pieces() -> Iterator[float]:
            state = None
            for step in range(10**9):
                first = step % 20 * piece
                x, y = text[first : first + piece], text[first + 1 : first + piece + 1]
                state = state and tuple(part.detach() for part in state)
                model.zero_grad()
                torch.manual_seed(step)  # of the dropout
                outputs, state = model(x, state)
                loss = nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten())
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(p.grad, alpha=-20.0)
                yield loss.item()

        return pieces().__next__

    return model, training


def tagger(
    dtype: torch.dtype, words: int = 1000, hidden: int = 128, B: int = 32, T: int = 40
) -> tuple[nn.Module, Callable[[nn.Module], Step]]:
    """As ``language_model``. A word's tag depends on the words on both sides."""
    torch.manual_seed(0)
    model = Tagger(words, hidden, hidden, tags=8).to(dtype)
    rng = np.random.default_rng(0)
    lengths = torch.from_numpy(rng.integers(T // 4, T + 1, B))
    x = chain(rng, words, T, B)
    y = (x.roll(1, 0) + x + x.roll(-1, 0)) % 8
    y[torch.arange(T)[:, None] >= lengths] = -100

    def training(model: nn.Module) -> Step:
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)

        def step() -> float:
            optimizer.zero_grad()
            outputs = model(x, lengths).flatten(0, 1)
            loss = nn.functional.cross_entropy(outputs, y.flatten())
            loss.backward()
            optimizer.step()
            return float(loss.item())

        return step

    return model, training


MODELS = {"language model": language_model, "tagger": tagger}


def both(name: str, dtype: torch.dtype, **sizes: int) -> dict[str, Step]:
    """A training step of the same model on PyTorch's layers and on refnet's."""
    model, training = MODELS[name](dtype, **sizes)
    ours = copy.deepcopy(model)
    assert refnet.torch.accelerate(ours)
    return {"torch": training(model), "refnet": training(ours)}


def apart(losses: dict[str, list[float]]) -> float:
    """The largest relative difference between the two curves."""
    a, b = (np.array(values) for values in losses.values())
    return float((abs(a - b) / abs(a)).max())


def measure(name: str, rounds: int) -> Row:
    """A row of the record."""
    row: Row = {"apart": {}}
    for dtype in (torch.float32, torch.float64):
        losses = {kind: [step() for _ in range(STEPS)] for kind, step in both(name, dtype).items()}
        row["apart"][str(dtype)] = {
            n: apart({k: v[:n] for k, v in losses.items()}) for n in (5, STEPS)
        }
    row["losses"] = losses["refnet"]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        steps, times = both(name, torch.float32), dict[str, list[float]]()
        for _ in range(rounds + 2):
            for kind, step in steps.items():
                begun = time.perf_counter()
                step()
                times.setdefault(kind, []).append(time.perf_counter() - begun)
        row[f"ms with {threads} threads"] = {
            kind: 1e3 * statistics.median(values[2:]) for kind, values in times.items()
        }
    return row


def main() -> int:
    parser = options("Train PyTorch's example models.", "torch_models", "one turn")
    given = parser.parse_args()
    settle()
    rows = {name: measure(name, 1 if given.quick else ROUNDS) for name in MODELS}
    for name, row in rows.items():
        print(name, {key: value for key, value in row.items() if key != "losses"}, flush=True)
    if not given.quick:
        save("torch_models", {"environment": environment(), "machine": machine(), "models": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
