"""The estimators: scikit-learn's conventions by its own checks, and sequences as X."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

import joblib
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from refnet.estimators import SequenceClassifier, SequenceRegressor
from refnet.tasks import Arrays
from refnet.training.config import Config
from refnet.training.experiment import build
from refnet.training.fit import Fit
from support.arguments import refused
from support.waves import waves

KINDS = (SequenceClassifier, SequenceRegressor)


def expected_failures(estimator):
    """Batches are drawn at random: a sequence of weight 2 is in one batch, two equal ones are in
    two."""
    return {"check_sample_weight_equivalence_on_dense_data": "training is stochastic"}


@pytest.mark.slow
@parametrize_with_checks(
    [kind(max_epochs=50) for kind in KINDS], expected_failed_checks=expected_failures
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def few(kind, **options):
    """A small estimator."""
    options = {"hidden": 6, "max_epochs": 3, "random_state": 0, "backend": "reference", **options}
    return kind(**options)


def bits(model):
    return {name: value.tobytes() for name, value in model.params_.items()}


def test_a_typical_problem_is_learned_with_the_defaults():
    """800 sequences of lengths 30 to 120, six features, four classes; and the same problem fails
    with labels at random."""
    X, y = waves(800, seed=0)
    model = SequenceClassifier(random_state=0).fit(X, y)
    assert model.score(*waves(500, seed=1)) > 0.95
    assert model.n_iter_ < 100 and len(model.validation_scores_) == model.n_iter_
    assert model.loss_curve_[-1] < 0.2 * model.loss_curve_[0]
    lost = SequenceClassifier(random_state=0, max_epochs=3)
    assert lost.fit(X, np.random.default_rng(0).permutation(y)).score(X, y) < 0.5


def test_all_forms_of_the_same_sequences():
    """A list, an array padded with NaN, and for one feature two axes: to the same bits."""
    X, y = waves(40, seed=0)
    padded = np.full((40, max(map(len, X)), 6), np.nan)
    for row, x in zip(padded, X):
        row[: len(x)] = x
    first, second = (few(SequenceClassifier).fit(each, y) for each in (X, padded))
    assert bits(first) == bits(second) and first.n_features_in_ == 6
    assert (first.predict_proba(padded) == second.predict_proba(X)).all()
    flat = np.random.default_rng(0).standard_normal((40, 8))
    first, second = (few(SequenceClassifier).fit(each, y) for each in (flat, flat[:, :, None]))
    assert bits(first) == bits(second)
    assert (first.n_features_in_, second.n_features_in_) == (8, 1)
    with refused("x has 5 features a step; need 1 features a step, as in training"):
        second.predict(padded[:, :, :5])


@pytest.mark.parametrize("embedding", [0, 3])
def test_lists_of_one_axis_are_sequences_even_of_equal_length(embedding):
    """As those of other lengths are: of one feature, or with an embedding of symbols, which a
    table of integers has as well."""
    x = np.random.default_rng(0).integers(0, 5, (20, 4))
    y, other = ["a", "b"] * 10, [[1, 2], [3, 4, 1, 0, 2, 2]]
    model = few(SequenceClassifier, embedding=embedding)
    fits = [clone(model).fit(each, y) for each in (x, x.tolist(), list(x), [*x[:-1], x[-1, :3]])]
    assert [each.n_features_in_ for each in fits] == [4, 4, 1, 1]
    assert len({tuple(v.shape for v in each.params_.values()) for each in fits}) == 1
    assert fits[0].params_["Wxh.E" if embedding else "Wxh"].shape[1] == (5 if embedding else 1)
    assert bits(fits[0]) == bits(fits[1]) == bits(fits[2]) != bits(fits[3])
    assert (fits[0].predict_proba(other) == fits[1].predict_proba(other)).all()
    words = [list("ab"), list("cb")] * 10
    if embedding:
        assert fits[0].fit(words, y).encoding_.words == ["a", "b", "c"]
    else:
        with refused("X has words; need numbers, or an embedding"):
            model.fit([*words[:-1], ["a"]], y)


def test_it_is_the_loop_of_refnet_train():
    """The same parameters as a Fit of the same task with the same settings."""
    X, y = waves(30, seed=0)
    model = few(SequenceClassifier, cell="lstm", transition="svd", recurrent="", rate=0.01)
    model.fit(X, y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    task = Arrays(X, y, splits=(1, 0, 0), seed=seed)
    config = Config(
        task="arrays",
        cell="lstm",
        hidden=6,
        transition="svd",
        optimizer="adam",
        rate=0.01,
        clip="norm",
        batch=32,
        iterations=3,
        evaluate_every=3,
        seed=seed,
        backend="reference",
    )
    fit = Fit.start(build(config, task))
    fit.advance()
    assert bits(model) == {name: value.tobytes() for name, value in fit.run.params.items()}


@pytest.mark.parametrize(
    "options",
    [
        {"cell": "rnn", "method": "oinit+open", "activation": "relu"},
        {"cell": "gru_before", "transition": "householder"},
        {"cell": "cifg", "layers": 2, "bidirectional": True},
        {"settings": {"learn_h0": True, "schedule": "cosine:steps=10"}},
    ],
)
def test_cells_transitions_and_methods_are_parameters(options):
    X, y = waves(24, seed=0)
    model = few(SequenceClassifier, **options).fit(X, y)
    assert model.predict_proba(X).shape == (24, 4)
    assert clone(model).get_params() == model.get_params()
    with refused("is unknown; choose one of"):
        few(SequenceClassifier, **{**options, "cell": "lsmt"}).fit(X, y)


def test_symbols_go_through_an_embedding():
    rng = np.random.default_rng(0)
    X = [rng.integers(1, 5, rng.integers(3, 9)) for _ in range(60)]
    y = [int(x[0] > 2) for x in X]
    model = few(SequenceClassifier, embedding=3, max_epochs=80, rate=0.02).fit(X, y)
    assert model.params_["Wxh.E"].shape == (3, 5) and model.score(X, y) > 0.9
    assert few(SequenceClassifier).fit(X, y).params_["Wxh"].shape == (18, 1)


def test_real_targets_in_their_units():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((rng.integers(3, 9), 2)) for _ in range(80)]
    y = np.array([(1e4 + 1e3 * x[:, 0].mean(), x[-1, 1]) for x in X])
    model = few(SequenceRegressor, max_epochs=60, rate=0.02).fit(X, y)
    assert model.predict(X).shape == (80, 2) and model.score(X, y) > 0.8
    single = few(SequenceRegressor).fit(X, y[:, 0])
    assert single.predict(X).shape == (80,) and abs(single.predict(X).mean() - 1e4) < 1e3


def test_early_stopping_keeps_the_best():
    X, y = waves(60, seed=0)
    model = few(SequenceClassifier, early_stopping=True, max_epochs=40, n_iter_no_change=2, rate=0)
    model.fit(X, y)
    assert model.n_iter_ == 3 and model.validation_scores_ == [model.validation_scores_[0]] * 3
    assert few(SequenceClassifier).fit(X, y).validation_scores_ is None


def test_weights():
    """Weights of classes are those of their sequences; a weight of 0 leaves a sequence out."""
    X, y = waves(40, seed=0)
    weights = np.where(y == "a", 3.0, 1.0)
    first = few(SequenceClassifier).fit(X, y, sample_weight=weights)
    second = few(SequenceClassifier, class_weight=dict(zip("abcd", (3, 1, 1, 1)))).fit(X, y)
    assert bits(first) == bits(second) != bits(few(SequenceClassifier).fit(X, y))
    without = few(SequenceClassifier).fit(X[10:], y[10:])
    zero = few(SequenceClassifier).fit(X, y, sample_weight=np.arange(40) >= 10)
    assert bits(without) == bits(zero)


def test_going_on():
    """``partial_fit`` trains an epoch more with the first call's classes and scales; so does
    ``warm_start``, as many as ``max_epochs``."""
    X, y = waves(40, seed=0)
    model = few(SequenceClassifier)
    for _ in range(4):
        model.partial_fit(X[:20], y[:20], classes=list("abcde"))
    assert model.classes_.tolist() == list("abcde") and model.n_iter_ == 4
    scales = model.encoding_
    model.partial_fit([x * 10 for x in X[20:]], y[20:])
    assert model.encoding_ == scales
    with refused("y has a class that is not in"):
        model.partial_fit(X[:2], ["a", "z"])
    with refused(r"need those of the first call: \['a', 'b', 'c', 'd', 'e'\]"):
        model.partial_fit(X[:2], y[:2], classes=list("abcdez"))
    warm = few(SequenceClassifier, warm_start=True).fit(X, y)
    before = bits(warm)
    assert warm.fit(X, y).n_iter_ == 6 and bits(warm) != before
    assert warm.set_params(optimizer="sgd").fit(X, y).set_params(optimizer="adam").fit(X, y)
    for change in ({"hidden": 5}, {"dtype": "float64"}):
        with refused("do not fit this net; put back the settings of that time, or fit with"):
            clone(warm).fit(X, y).set_params(**change).fit(X, y)
    cold = few(SequenceClassifier).fit(X, y)
    before = bits(cold)
    assert bits(cold.fit(X, y)) == before and cold.n_iter_ == 3


def test_pickling_as_users_do(tmp_path):
    X, y = waves(30, seed=0)
    model = few(SequenceClassifier, transition="svd").fit(X, y)
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert (tmp_path / "model.joblib").stat().st_size < 50_000  # no training data


def test_pipelines_and_searches():
    X, y = waves(60, seed=0)
    scale = FunctionTransformer(scaled)
    pipeline = make_pipeline(scale, few(SequenceClassifier, max_epochs=2))
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    flat = np.random.default_rng(0).standard_normal((60, 5))
    assert make_pipeline(StandardScaler(), few(SequenceRegressor)).fit(flat, flat[:, 0])
    search = GridSearchCV(
        few(SequenceClassifier, max_epochs=2),
        {"cell": ["rnn", "gru"], "hidden": list(np.array([3, 4]))},
        cv=2,
        n_jobs=2,
    ).fit(X, y)
    alone = GridSearchCV(search.estimator, search.param_grid, cv=2).fit(X, y)
    names = [f"split{n}_test_score" for n in (0, 1)]
    assert all((search.cv_results_[n] == alone.cv_results_[n]).all() for n in names)


def scaled(X):
    return [x / 2 for x in X]


def test_epochs_of_accumulated_batches():
    """An epoch is a pass over the sequences, whatever a step takes."""
    X, y = waves(96, seed=0)
    model = few(SequenceClassifier, batch=8, settings={"accumulate": 4}, max_epochs=5).fit(X, y)
    assert model.n_iter_ == len(model.loss_curve_) == 5
    assert model._settings.iterations == 5 * 96 // (8 * 4)


REFUSED = [
    ({"settings": {"zoneuot": 0.1}}, "setting 'zoneuot' is unknown; the settings are task"),
    ({"settings": {"iterations": 3}}, "settings: iterations is 3; need none, so pass max_epochs"),
    ({"settings": {"hidden": 3}}, "settings: hidden is 3; need none, so pass hidden"),
    ({"settings": {"task": "copy"}}, "settings: task is 'copy'; need none, so leave it out"),
    ({"max_epochs": 0}, "max_epochs is 0; need at least 1"),
    ({"early_stopping": "yes"}, "early_stopping is 'yes'; need True, False or 'auto'"),
    ({"early_stopping": True, "validation_fraction": 0.0}, "validation_fraction is 0.0; need"),
    ({"early_stopping": True, "validation_fraction": 0.01}, "of 20 sequences none; need a larger"),
    ({"class_weight": dict.fromkeys("abcd", 0)}, "none below 0 and not all 0"),
]


@pytest.mark.parametrize("options, said", REFUSED)
def test_what_would_have_no_effect_is_refused(options, said):
    with refused(said):
        few(SequenceClassifier, **options).fit(*waves(20, seed=0))


def test_missing_features():
    """Refused, or as the error says the mean."""
    X, y = waves(20, seed=0)
    X[3][1] = np.nan
    with refused("missing='mean'"):
        few(SequenceClassifier).fit(X, y)
    model = few(SequenceClassifier, missing="mean").fit(X, y)
    table = np.where(np.eye(20, 6, dtype=bool), np.nan, np.arange(6.0))
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.fit(table, y).predict_proba(table)).all()
