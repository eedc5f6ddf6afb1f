"""Orhan & Pitkow's initialisers under the protocol of their released code, and questions that the
papers leave open."""

from refnet.studies.grid import Cell, accuracy, grid, solved_at

__all__ = ["STUDIES"]

STARTS = {"chain": "chain:gain=1.02", "fbchain": "fbchain:feedback=0.04",
          "orthogonal": "orthogonal:gain=1", "identity": "identity:scale=1"}
QUICK = {"copy": {"task": "copy:samples=500", "length": 20, "iterations": 400,
                  "evaluate_every": 200},
         "adding": {"task": "adding:samples=500", "length": 30, "iterations": 400,
                    "evaluate_every": 200}}

STUDIES = [
    grid("orhan-pitkow", "Figure 3 of Orhan & Pitkow: starts of a simple net on copy, adding and "
         "permuted MNIST", [
             Cell(f"{task}, {name}", {"task": task, "recurrent": spec,
                                      "protocol": "orhan-pitkow/code"},
                  quick=QUICK.get(task, {}))
             for task in ("copy", "adding", "permuted-mnist") for name, spec in STARTS.items()],
         [("iterations until solved", solved_at, ".0f"), ("best accuracy, %", accuracy, ".2f"),
          ("best mean squared error", lambda row: row["best"].get("mse"), ".4f")],
         ("loss", "accuracy", "mse"), lambda label: label.partition(",")[0]),
    grid("left-open", "What the papers leave open: OINIT and OPEN together, W = D o S, non-normal "
         "starts of gated nets", [
             *(Cell(f"temporal-order T = 80, {name}", {
                 "task": "temporal-order", "length": 80, "protocol": "manchev-spratling/code",
                 **settings}, quick={"task": "temporal-order:samples=1000", "length": 20,
                                     "iterations": 500})
               for name, settings in (
                   ("OINIT", {"method": "oinit"}), ("OPEN", {"method": "open"}),
                   ("OINIT+OPEN", {"method": "oinit+open"}),
                   ("D o S, OINIT", {"method": "oinit", "transition": "product"}),
                   ("D o S, OPEN", {"method": "open", "transition": "product"}))),
             *(Cell(f"copy T = 80, {cell}, {name}", {
                 "task": "copy", "length": 80, "cell": cell, "recurrent": spec,
                 "iterations": 30_000, "evaluate_every": 300, "activation": "tanh",
                 "rate": 1e-3, "protocol": "orhan-pitkow/code", **gates})
               for cell in ("lstm", "gru") for name, spec, gates in (
                   ("orthogonal", "orthogonal", {}), ("chain", "chain", {}),
                   ("chain with ramp gates", "chain", {"gate_recurrent": "ramp"})))],
         [("iterations until solved", solved_at, ".0f"), ("best accuracy, %", accuracy, ".2f")],
         ("accuracy",), lambda label: label.partition(",")[0]),
]
