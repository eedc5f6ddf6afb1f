"""Estimators of scikit-learn for sequences: fit, predict and score, over the loop that ``refnet
train`` runs. They need scikit-learn (extra ``sklearn``).

X is what the sequences are, y one target for each: a list of arrays (T, D) or (T,), each of its
own length, alike or not; an array (N, T, D), in which steps at a sequence's end that are NaN in
every feature are no steps; or (N, T), sequences of one feature, as scikit-learn's own tools make
them. With an ``embedding``, whole numbers or words in the place of the one feature are symbols.
Features are standardized inside.

Checked by: tests/training/test_estimators.py.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from refnet.batch import Array, Params
from refnet.common.arguments import number, short, whole
from refnet.common.process import serial_blas
from refnet.maths.losses import softmax
from refnet.runs.read import Record
from refnet.tasks.arrays import Arrays
from refnet.tasks.base import Task
from refnet.tasks.sequences import Data, Encoding, Sequences, sequences
from refnet.training.config import Config, declaration
from refnet.training.experiment import Experiment, build
from refnet.training.fit import Fit
from refnet.training.steps import Run

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state
    from sklearn.utils.class_weight import compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_array,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise ImportError("estimators need scikit-learn: pip install 'refnet[sklearn]'") from None

MANY = 500
"""Sequences from which early stopping is worth a part of them."""
APART = (
    *("max_epochs", "early_stopping", "validation_fraction", "n_iter_no_change"),
    *("warm_start", "random_state", "class_weight", "missing", "settings"),
)
"""The parameters that are no settings of a Config."""
INSTEAD = {
    "iterations": "max_epochs",
    "evaluate_every": "early_stopping",
    "seed": "random_state",
    "patience": "n_iter_no_change",
    "ignore": "sample_weight",
    **dict.fromkeys(("task", "protocol", "length", "carry", "net"), ""),
}
"""The settings that an estimator has no use for, and the parameters in their place."""


def _is_table(X: Data) -> bool:
    """Whether X is an array (N, T), for ``validate_data``; else a list, or (N, T, D)."""
    listed = getattr(X, "dtype", None) == object and X.ndim == 1
    return not listed and not isinstance(X, (list, tuple)) and getattr(X, "ndim", 2) != 3


@dataclass(eq=False, repr=False, kw_only=True)
class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share. The settings of ``refnet.Config`` have their names there; most
    that are not listed may be given in ``settings``, a dict, which refuses the others.

    ``max_epochs``: passes over the training part. ``early_stopping``: hold out
    ``validation_fraction`` of the sequences, stop when ``n_iter_no_change`` epochs have brought
    nothing better there, and keep the best parameters; "auto" does so from 500 sequences on.
    ``warm_start``: fit goes on from the parameters of the last fit. ``random_state``: the same
    number, the same bits. ``missing``: "refuse" features that are NaN, or put the training part's
    "mean" there.

    After fit: ``loss_curve_`` (the mean training loss of every epoch), ``validation_scores_`` (of
    every epoch; None without a validation part), ``n_iter_`` (epochs), ``params_`` (by name),
    ``encoding_`` (means, scales and classes), ``n_features_in_``.
    """

    cell: str = "gru"
    hidden: int = 64
    layers: int = 1
    bidirectional: bool = False
    activation: str = "tanh"
    embedding: int = 0
    transition: str = "dense"
    weights: str = "glorot_uniform"
    recurrent: str = "orthogonal"
    method: str = "plain"
    orthogonal: str = "hidden"
    strength: float = 0.01
    optimizer: str = "adam"
    rate: float = 0.003
    weight_decay: float = 0.0
    clip: str = "norm"
    clip_at: float = 1.0
    batch: int = 32
    order: str = "shuffled"
    dtype: str = "float32"
    backend: str = "auto"
    settings: Record | None = None
    max_epochs: int = 100
    early_stopping: bool | str = "auto"
    validation_fraction: float = 0.1
    n_iter_no_change: int = 15
    warm_start: bool = False
    missing: str = "refuse"
    random_state: Any = None

    if TYPE_CHECKING:
        params_: Params
        encoding_: Encoding
        loss_curve_: list[float]
        _optimizer: Params
        _settings: Config
        _calls: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags

    def fit(self, X: Data, y: Data, sample_weight: Data = None) -> Self:
        """Train on sequences X and their targets y. Raises ValueError, in one line, for what does
        not fit together."""
        again = self.warm_start and hasattr(self, "params_")
        return self._train(X, y, sample_weight, again, whole("max_epochs", self.max_epochs))

    @serial_blas
    def _train(self, X: Data, y: Data, sample_weight: Data, again: bool, epochs: int) -> Self:
        given = self._sequences(X, reset=not again)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        targets, kind = self._targets(y, again)
        check_consistent_length(given.lengths, targets)
        weights = self._weights(targets, sample_weight)
        if weights is not None and weights.any():  # those of weight 0 are not there
            rows = np.flatnonzero(weights)
            given, targets, weights = given.part(rows), targets[rows], weights[rows]
        chosen = self.early_stopping
        if chosen not in (True, False, "auto"):
            raise ValueError(f"early_stopping is {short(chosen)}; need True, False or 'auto'")
        if chosen == "auto":
            chosen = len(given.lengths) >= MANY
        fraction = number("validation_fraction", self.validation_fraction, "(0, 1)")
        held = fraction if chosen and epochs > 1 else 0.0
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1)) + (self._calls if again else 0)
        task = Arrays(
            given,
            targets,
            splits=(1 - held, held, 0.0),
            seed=seed,
            targets=kind,
            readout="last",
            order=self.order,
            missing=self.missing,
            dtype=self.dtype,
            weights=weights,
            encoding=self.encoding_ if again else cast(Encoding, None),
        )
        if held and "validation" not in task.splits:
            raise ValueError(
                f"validation_fraction is {held}, of {len(targets)} sequences none; need a larger "
                "one, or early_stopping=False"
            )
        config = self._config()
        each = -(-task.size // (self.batch * config.accumulate))
        config = replace(
            config,
            seed=seed,
            iterations=epochs * each,
            evaluate_every=each if held else epochs * each,
            patience=self.n_iter_no_change if held else 0,
        )
        self._run(task, config, again, each, bool(held))
        return self

    def _run(self, task: Arrays, config: Config, again: bool, each: int, held: bool) -> None:
        experiment, losses = build(config, task), list[float]()

        def observe(kind: str, facts: Record) -> None:
            if kind == "step":
                losses.append(facts["loss"])

        fit = Fit.start(experiment)
        if again:
            before, now = (
                {name: (value.shape, value.dtype) for name, value in params.items()}
                for params in (self.params_, fit.run.params)
            )
            if before != now:
                raise ValueError(
                    "the parameters of the last fit do not fit this net; put back the settings of "
                    "that time, or fit with warm_start=False"
                )
            same = config.optimizer == self._settings.optimizer
            state = self._optimizer if same else fit.run.optimizer
            fit = Fit(experiment=experiment, run=Run(self.params_, state, self.params_, {}))
        fit.advance(observe)
        run, cuts = fit.run, range(each, len(losses), each)
        self.params_ = run.best_params if held else run.params
        self._optimizer, self.encoding_, self._settings = run.optimizer, task.encoding, config
        self._calls = self._calls + 1 if again else 1
        epochs = [float(np.mean(part)) for part in np.split(np.array(losses), cuts)]
        scores = [row[task.metric if task.metric == "accuracy" else "r2"] for row in fit.rows]
        self.loss_curve_ = (self.loss_curve_ if again else []) + epochs
        self.validation_scores_ = scores if held else None
        self.n_iter_, self.loss_ = len(self.loss_curve_), epochs[-1]

    def _config(self) -> Config:
        shared = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params(deep=False).items()
            if name not in APART
        }
        for name, value in (self.settings or {}).items():
            declaration(name)  # refuses an unknown name
            if name in shared or name in INSTEAD:
                said = INSTEAD.get(name, name)
                mend = f"pass {said} to {type(self).__name__}" if said else "leave it out"
                raise ValueError(f"settings: {name} is {value!r}; need none, so {mend}")
        return Config(task="arrays", **(shared | (self.settings or {})))

    def _sequences(self, X: Data, reset: bool) -> Sequences:
        """X as numbers, or as symbols for an embedding."""
        if reset and isinstance(X, list) and all(isinstance(each, list) for each in X):
            X = np.array(X) if len({*map(len, X)}) == 1 else X  # what ``tolist`` made of a table
        table, lengths = _is_table(X), None
        if reset:
            self._table = table
        if table and self._table:
            kind = None if self.embedding else "numeric"
            finite = "allow-nan" if self.missing == "mean" else True
            X = validate_data(self, X, reset=reset, dtype=kind, ensure_all_finite=finite)
        if isinstance(X, np.ndarray) and X.ndim == 3 and X.dtype.kind == "f":
            steps = np.arange(1, X.shape[1] + 1)
            lengths = (~np.isnan(X).all(axis=2) * steps).max(axis=1)
        given = sequences("X", X, lengths)
        if given.steps.ndim == 1 and not self.embedding:
            if given.steps.dtype.kind == "U":
                raise ValueError("X has words; need numbers, or an embedding, such as embedding=16")
            given = given._replace(steps=given.steps[:, None].astype(np.float64))
        if reset and not table:
            self.n_features_in_ = given.steps[:1].size
        return given

    def _targets(self, y: Data, again: bool) -> tuple[Array, list[int] | str]:
        """The targets, and which classes there are, or "real"."""
        raise NotImplementedError

    def _weights(self, targets: Array, weights: Data) -> Array | None:
        if weights is None:
            return None
        checked: Array = _check_sample_weight(weights, targets)
        return checked

    @serial_blas
    def _outputs(self, X: Data) -> Array:
        """The net's outputs (N, C), in the user's units."""
        check_is_fitted(self, "params_")
        given = self._sequences(X, reset=False)
        experiment: Experiment = build(self._settings, cast(Task, self.encoding_))
        net, params = experiment.assembled(self.params_)
        return np.asarray(self.encoding_.apply(net, params, given), np.float64)


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A recurrent net that names the class of a sequence. The settings: see the module's
    ``_Estimator``, and ``refnet train --help``.

    ``class_weight``: "balanced", or a dict of a weight by class, as in scikit-learn. After fit
    there is ``classes_`` besides, and ``score`` is the accuracy.

    >>> X = [np.full((n, 1), float(n % 2)) for n in (3, 4, 5, 6) * 5]
    >>> y = ["odd", "even", "odd", "even"] * 5
    >>> model = SequenceClassifier(hidden=4, max_epochs=20, random_state=0, backend="reference")
    >>> model.fit(X, y).predict(X[:2]).tolist()
    ['odd', 'even']

    Checked by: tests/training/test_estimators.py.
    """

    class_weight: Any = None

    def partial_fit(
        self, X: Data, y: Data, classes: Data = None, sample_weight: Data = None
    ) -> Self:
        """One epoch over these sequences, from the parameters so far; the first call fixes the
        means and scales, and takes all ``classes`` that will come."""
        if classes is not None and not hasattr(self, "params_"):
            self._coming = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes is {short(classes)}; need those of the first call: "
                f"{self.classes_.tolist()}"
            )
        return self._train(X, y, sample_weight, hasattr(self, "params_"), 1)

    def _targets(self, y: Data, again: bool) -> tuple[Array, list[int] | str]:
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if not again:
            self.classes_ = self.__dict__.pop("_coming", None)
            self.classes_ = np.unique(y) if self.classes_ is None else self.classes_
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[codes] != y).any():
            raise ValueError(f"y has a class that is not in {self.classes_.tolist()}")
        return codes, list(range(len(self.classes_)))

    def _weights(self, codes: Array, weights: Data) -> Array | None:
        weights = super()._weights(codes, weights)
        if self.class_weight is None:
            return cast("Array | None", weights)
        present = np.unique(codes)
        factors = np.ones(len(self.classes_))
        factors[present] = compute_class_weight(
            self.class_weight, classes=self.classes_[present], y=self.classes_[codes]
        )
        return np.asarray(factors[codes] * (1 if weights is None else weights))

    def predict(self, X: Data) -> Array:
        """The class of each sequence, (N,)."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[outputs.argmax(axis=1)])

    def predict_proba(self, X: Data) -> Array:
        """The probability of each of ``classes_``, (N, C): the softmax of the outputs."""
        return softmax(self._outputs(X))


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A recurrent net with real targets, one or several for a sequence, which are standardized
    inside. The settings: see the module's ``_Estimator``, and ``refnet train --help``.

    ``score`` is R^2.

    >>> X = [np.full((n, 1), float(n)) for n in (3, 4, 5, 6) * 5]
    >>> model = SequenceRegressor(hidden=4, max_epochs=200, random_state=0, backend="reference")
    >>> model.fit(X, [len(x) for x in X]).score(X, [len(x) for x in X]) > 0.5
    True

    Checked by: tests/training/test_estimators.py.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, y: Data, again: bool) -> tuple[Array, list[int] | str]:
        values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        self._plain = values.ndim == 1
        return values, "real"

    def partial_fit(self, X: Data, y: Data, sample_weight: Data = None) -> Self:
        """One epoch over these sequences, from the parameters so far; the first call fixes the
        means and scales."""
        return self._train(X, y, sample_weight, hasattr(self, "params_"), 1)

    def predict(self, X: Data) -> Array:
        """The targets of each sequence, (N,) or (N, C) as in fit."""
        outputs = self._outputs(X)
        values = self.encoding_.answers(outputs)
        return values[:, 0] if self._plain else values
