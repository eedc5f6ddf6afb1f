"""The estimators with their defaults on real sequences: ``python -m benchmarks.real``.

JapaneseVowels (Kudo, Toyama & Shimbo 1999; with sktime: ``pip install --no-deps sktime``): nine
speakers by 12 coefficients over 7 to 29 steps, 270 utterances to train and 370 to test.
results/real.json has the test accuracy of every seed.
"""

from statistics import median
from typing import Any

from benchmarks.records import Row, record, save
from refnet.batch import Array
from refnet.runs.rows import environment, table

NAME, SEEDS = "JapaneseVowels", 5
MODELS: dict[str, Row] = {
    "SequenceClassifier()": {},
    'SequenceClassifier(cell="lstm")': {"cell": "lstm"},
    'SequenceClassifier(cell="rnn")': {"cell": "rnn"},
    'SequenceClassifier(cell="rnn", method="open")': {"cell": "rnn", "method": "open"},
    'SequenceClassifier(bidirectional=True, settings={"dropout_layers": 0.3})': {
        "bidirectional": True,
        "settings": {"dropout_layers": 0.3},
    },
}


def listed(data: Any) -> list[Array]:
    """The sequences of a benchmarks.fit.Data, each (T, D) of its own length."""
    return [data.x[:length, n] for n, length in enumerate(data.lengths)]


def main() -> None:
    from benchmarks.fit import shipped  # benchmarks.readme needs neither torch nor scikit-learn
    from refnet.estimators import SequenceClassifier

    train, test = shipped(NAME)
    rows: Row = {}
    for name, options in MODELS.items():
        models = (SequenceClassifier(random_state=seed, **options) for seed in range(SEEDS))
        trained = (model.fit(listed(train), train.y) for model in models)
        rows[name] = [float(model.score(listed(test), test.y)) for model in trained]
        print(name, rows[name], flush=True)
    save("real", {"environment": environment(), "rows": rows})


def real_data() -> str:
    """The accuracies as a table."""
    rows = record("real")["rows"]
    return table(
        ["model", "test accuracy, median of five seeds", "lowest", "highest"],
        [
            [f"`{name}`", f"{median(scores):.1%}", f"{min(scores):.1%}", f"{max(scores):.1%}"]
            for name, scores in rows.items()
        ],
    ) + ("\n```sh\npython -m benchmarks.real\n```\n")


if __name__ == "__main__":
    main()
