"""Every setting of every protocol's run, stated a second time: the number that the paper prints,
with its section or table, or the one in the released code.

Where neither says anything the entry stands under PLAIN: one layer, one direction, no embedding,
no gain, no weight decay, no clipping, the batch's mean as the loss.
"""

import re
from dataclasses import replace
from math import log

import pytest

from refnet.common.specs import parse_spec
from refnet.tasks import make_task
from refnet.training.config import OWN, applicable
from refnet.training.papers import PROTOCOLS
from refnet.training.protocols import preset
from refnet.training.specs import options_of, read_spec

PLAIN = {
    "cell": {"": "rnn"},
    "layers": 1,
    "bidirectional": False,
    "embedding": 0,
    "gain": 1.0,
    "learn_h0": False,
    "reduction": "mean",
    "weight_decay": 0.0,
    "clip": "none",
    "input_weights": {"": ""},
    "recurrent": {"": ""},
    "transition": {"": "dense"},
}
SGD = {"": "sgd"}
# rho .9, epsilon 1e-6 inside the root, the accumulator from 0: Lasagne's
LASAGNE = {
    "": "rmsprop",
    "decay": 0.9,
    "eps": 1e-6,
    "place": "inside",
    "first": 0,
    "form": "lasagne",
}
SYNTHETIC = ("temporal-order", "temporal-order-3bit", "adding", "random-permutation")

TABLE_I = {  # of Manchev & Spratling: alpha; alpha and lambda of OPEN
    ("temporal-order", "plain"): 0.01,
    ("temporal-order", "open"): (0.001, 1.0),
    ("temporal-order", "oinit"): 0.0001,
    ("temporal-order-3bit", "plain"): 0.1,
    ("temporal-order-3bit", "open"): (0.001, 1.0),
    ("temporal-order-3bit", "oinit"): 0.0001,
    ("adding", "plain"): 0.01,
    ("adding", "open"): (0.01, 0.0001),
    ("adding", "oinit"): 0.01,
    ("random-permutation", "plain"): 0.0001,
    ("random-permutation", "open"): (0.1, 0.01),
    ("random-permutation", "oinit"): 0.1,
}
TABLES_II_III = {  # the same; a plain net has none printed and takes OPEN's
    ("sequential-mnist", "oinit"): 0.00001,
    ("sequential-mnist", "open"): (0.0001, 0.1),
    ("sequential-mnist", "plain"): 0.0001,
    ("mnist", "oinit"): 0.01,
    ("mnist", "open"): (0.01, 0.01),
    ("mnist", "plain"): 0.01,
}


def manchev_spratling(kind, task, method):
    """III: 100 tanh units, batches of 20, at most 100,000 iterations, a test every 100 on 10,000
    sequences, SGD, Glorot's uniform start. II-A: alpha_p .1, E^p < 1e-6; the code: 100 steps."""
    code = kind == "code"
    alpha = {**TABLE_I, **TABLES_II_III}[task, method]
    rate, strength = alpha if isinstance(alpha, tuple) else (alpha, None)
    settings = {
        **PLAIN,
        "net": "recurrent",
        "hidden": 100,
        "activation": {"": "tanh"},
        "batch": 20,
        "iterations": 100_000,
        "evaluate_every": 100,
        "method": method,
        "rate": rate,
        "weights": {"": "glorot_uniform", "gain": 1},
        "optimizer": LASAGNE if code else SGD,
    }
    if task in SYNTHETIC:
        settings |= {"length": 0, "task": {"": task, "length": 60, "samples": 10_000}}
    if task == "adding":  # the text's target is the sum, the code's half of it
        settings["task"]["protocol"] = f"manchev-spratling{'-code' * code}"
    if task == "sequential-mnist":  # III-B, Table II: sigma; batches of 16, a million of them
        settings |= {
            "weights": {"": "gaussian", "sd": 0.01 if method == "oinit" else 0.001},
            "batch": 16,
            "iterations": 1_000_000,
            "evaluate_every": 1000,
        }
    if task == "mnist":  # III-C: sigma .001, 10 layers (the code builds 11), 100 epochs, SGD
        for name in "cell layers bidirectional embedding gain learn_h0".split():
            del settings[name]
        settings |= {
            "net": "feedforward",
            "depth": 11 if code else 10,
            "optimizer": SGD,
            "weights": {"": "gaussian", "sd": 0.001},
            "iterations": 100 * 60_000 // 20,
            # the code tests after 10,000 examples; an epoch is the plainest choice
            "evaluate_every": (10_000 if code else 60_000) // 20,
        }
    if task in ("sequential-mnist", "mnist"):  # 60,000 and 10,000 images, best on the test set
        settings["task"] = {"": task, "scaling": "code" if code else "unit", "validation": 0}
        settings["order"] = "file" if code else "shuffled"  # the code never shuffles
    if method == "oinit":
        settings |= {
            "orthogonal": "all" if code else "hidden",
            "oinit_rate": 0.1,
            "oinit_form": "squared",
            "oinit_gradient": 0.0,
            "oinit_cost": 1e-6,
            "oinit_steps": 100,
        }
    if method == "open":  # eq. 31; the recurrent code takes the root, the other one all matrices
        settings |= {
            "orthogonal": "all" if code and task == "mnist" else "hidden",
            "strength": strength,
            "open_as": "penalty",
            "open_form": "unsquared" if code and task != "mnist" else "squared",
        }
    return settings


SVD = {
    "": "svd",
    "margin": 0.1,
    "spectrum_rate": "printed",
    "spectrum_factor": 1,
    "negative": "keep",
    "prior": 0,
    "soft": 0,
    "step": "cayley",
    "metric": "canonical",
}


def vorontsov(kind, task):
    """3: batches of 50, RMSprop 1e-4, bases 1e-6, weight decay 1e-4, clipping at 100; eq. 10 and
    11: p at the rate over 2m. 128 units; PTB 512, 1e-3 and 30."""
    code, ptb = kind == "code", task == "ptb"
    lengths = {"copy": 0, "adding": 1000}
    return {
        **PLAIN,
        "net": "recurrent",
        "hidden": 512 if ptb else 128,
        "method": "plain",
        "activation": {"": {"copy": "identity", "adding": "relu"}.get(task, "tanh")},
        "transition": SVD
        | ({"negative": "relu"} if code else {})
        # the spectrum's rate stays 1e-4
        | ({"spectrum_factor": 0.1} if code and ptb else {}),
        "weights": {"": "glorot_uniform", "gain": 1},
        "input_weights": {"": "uniform", "limit": 0.01},
        "recurrent": {"": "orthogonal", "gain": 1},
        # geodesic_sgd.py: no step of U and V builds on the one before
        "rate": 1e-3 if ptb else 1e-4,
        "manifold_rate": 0.0 if code else 1e-6,
        # run_rnn.py has PTB's loss in bits: in nats all that is added to it, compared with it
        # or with its gradient is log 2 times as large
        "optimizer": LASAGNE | ({"eps": 1e-6 * log(2) ** 2} if code and ptb else {}),
        "weight_decay": 1e-4 * (log(2) if code and ptb else 1),
        "clip": "step" if code else "norm",
        "learn_h0": code,
        "batch": 50,
        "clip_at": 30.0 * (log(2) if code else 1) if ptb else 100.0,
        "embedding": 512 if code and ptb else 0,
        # data.py: a permutation of the lines an epoch; of MNIST's images, one a batch
        **(
            {"length": lengths[task]}
            if task in lengths
            else {"order": "mixed" if ptb else "drawn" if code else "shuffled"}
        ),
        # epochs: 100 batches of generated data, 50,000 images, PTB's lines of 75 characters
        "iterations": {"copy": 200 * 100, "adding": 2000 * 100, "ptb": 200 * 198}.get(
            task, 120 * 50_000 // 50
        ),
        "evaluate_every": {"copy": 100, "adding": 100, "ptb": 198}.get(task, 50_000 // 50),
        "task": {"": task}
        | {
            "copy": {"length": 200, "samples": 10_000, "encoding": "scalar" if code else "one-hot"},
            "adding": {"length": 60, "samples": 10_000, "protocol": f"vorontsov{'-code' * code}"},
            "ptb": {"characters": 75, "select": "accuracy"},
            "sequential-mnist": {"scaling": "unit", "validation": 10_000},
            "permuted-mnist": {
                "scaling": "unit",
                "validation": 10_000,
                "permutation": "randomstate-0",
            },
        }[task],
    }


def orhan_pitkow(kind, task):
    """The released train.py: 100 units, batches of 16, 100 epochs of 60,000, Keras 2.2's RMSprop
    at 1e-4 with its epsilon 1e-7 outside the root, gradients' common norm at most 10; chain 1.02
    fed by .9 I."""
    lengths = {"copy": 480, "adding": 750}
    return {
        **PLAIN,
        "net": "recurrent",
        "hidden": 100,
        "method": "plain",
        "batch": 16,
        "activation": {"": "relu"} if task == "adding" else {"": "elu", "alpha": 1},
        "recurrent": {"": "chain", "gain": 1.02, "diagonal": 0},
        "weights": {"": "glorot_uniform", "gain": 1},
        "input_weights": {"": "identity", "scale": 0.9},
        "optimizer": {
            "": "rmsprop",
            "decay": 0.9,
            "eps": 1e-7,
            "place": "outside",
            "first": 0,
            "form": "keras",
        },
        "rate": 1e-4,
        "clip": "norm",
        "clip_at": 10.0,
        "iterations": 100 * 60_000 // 16,
        "evaluate_every": 60_000 // 16,
        # Keras shuffles in every epoch
        **({"length": lengths[task]} if task in lengths else {"order": "shuffled"}),
        "task": {"": task}
        | {
            "copy": {"length": 200, "samples": 10_000, "encoding": "one-hot"},
            "adding": {"length": 60, "samples": 10_000, "protocol": "orhan-pitkow"},
            "permuted-mnist": {"scaling": "unit", "validation": 0, "permutation": "randomstate-0"},
        }[task],
    }


def every():
    for protocol, (tasks, _) in PROTOCOLS.items():
        authors, kind = protocol.split("/")
        for task in tasks if authors != "refnet" else ():
            for method in ("plain", "oinit", "open") if authors.startswith("manchev") else [None]:
                yield protocol, authors, kind, task, method


STATED = {
    "manchev-spratling": manchev_spratling,
    "vorontsov": vorontsov,
    "orhan-pitkow": orhan_pitkow,
}


def spelled(config):
    """All settings of a run but the user's own, specs with all their options."""
    settings = {}
    for name, value in applicable(config).items():
        if name in (
            "task",
            "transition",
            "weights",
            "input_weights",
            "recurrent",
            "optimizer",
            "activation",
            "cell",
        ):
            kind, given = read_spec(name, value) if value else ("", {})
            known = (
                {option: entry.default for option, entry in options_of(name, kind).items()}
                if kind
                else {}
            )
            if name == "optimizer" and given.get("form"):
                from refnet.training.optimizers import RMSPROP_FORMS

                known |= RMSPROP_FORMS[given["form"]]
            settings[name] = {"": kind, **known, **given}
        elif name not in OWN:
            settings[name] = value
    return settings


@pytest.mark.parametrize("protocol, authors, kind, task, method", list(every()))
def test_every_setting_is_the_printed_one(protocol, authors, kind, task, method):
    given = {} if method is None else {"method": method}
    config = preset(task, protocol=protocol, **given)
    stated = STATED[authors](kind, task, *given.values())
    settings = spelled(config)
    for name in {**stated, **settings}:
        assert settings.get(name, "nothing") == stated.get(name, "nothing"), name
    # a changed number would be noticed
    assert spelled(replace(config, rate=2 * config.rate)) != stated


@pytest.mark.parametrize(
    "task, protocol, criterion",
    [
        *(
            (task, f"manchev-spratling/{kind}", "no error")
            for kind in ("text", "code")
            for task in SYNTHETIC
            if task != "adding"
        ),
        ("adding", "manchev-spratling/text", r"no \|error\| of 1e-4"),  # III-A
        ("adding", "manchev-spratling/code", r"no squared error above \.04"),
        ("copy", "vorontsov/text", "99%"),
        ("copy", "vorontsov/code", "99%"),
    ],
)  # ours: none is printed
def test_the_criterion_is_the_printed_one(task, protocol, criterion):
    name, options = read_spec("task", preset(task, protocol=protocol).task)
    assert re.match(f".*{criterion}", make_task(name, **options).criterion)


def test_an_lstm_follows_the_text_of_vorontsov_et_al():
    """3.1.2: 128 units, peepholes, orthogonal start, forget bias 1, RMSprop 1e-4, clipping at 1,
    150 epochs."""
    for kind in ("text", "code"):
        for task in ("sequential-mnist", "permuted-mnist"):
            settings = spelled(preset(task, protocol=f"vorontsov/{kind}", cell="lstm"))
            stated = vorontsov(kind, task) | {
                "cell": {"": "lstm", "peepholes": True, "forget": 1.0},
                "clip_at": 1.0,
                "transition": {"": "dense"},
                "input_weights": {"": "orthogonal", "gain": 1},
                "gate_recurrent": "",
                "iterations": 150 * 50_000 // 50,
            }
            del stated["manifold_rate"]
            assert {name: settings[name] for name in stated} == stated and set(settings) == set(
                stated
            )


def test_table_4_has_its_own_epochs():
    """Lines of up to 300 characters: 837 batches of 50."""
    config = preset("ptb:characters=300", protocol="vorontsov/text")
    assert (config.iterations, config.evaluate_every) == (200 * 837, 837)


def test_the_normal_starts_of_orhan_and_pitkow_take_a_normal_input_matrix():
    """V from N(0, .9 / sqrt N), N = 100; as their code does, with any N."""
    for start in ("orthogonal", "identity"):
        for hidden, sd in ((100, "0.09"), (400, "0.045")):
            config = preset("copy", protocol="orhan-pitkow/code", recurrent=start, hidden=hidden)
            assert parse_spec(config.input_weights) == ("gaussian", {"sd": sd})


def test_the_embedding_of_vorontsov_is_as_wide_as_the_net():
    for hidden in (512, 64):
        assert preset("ptb", protocol="vorontsov/code", hidden=hidden).embedding == hidden
    assert preset("ptb", protocol="vorontsov/code").embedding == 512
