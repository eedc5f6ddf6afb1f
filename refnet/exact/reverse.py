"""Gradients pulled back through what recorded arrays keep of a computation.

Source: Griewank & Walther, Evaluating Derivatives (2008), chapter 3.
Checked by: tests/exact/test_recorder.py.
"""

from operator import attrgetter

import numpy as np

from refnet.batch import Array
from refnet.exact.convert import Lift
from refnet.exact.recorder import Node, Operand, Piece, refuse_infinite


def _unbroadcast(g: Operand, shape: tuple[int, ...]) -> Array:
    """The cotangent of an array of ``shape`` that was broadcast: ``g`` summed over the new axes."""
    g = np.asanyarray(g)
    lead = g.ndim - len(shape)
    axes = tuple(n for n in range(g.ndim) if n < lead or shape[n - lead] != g.shape[n])
    return np.reshape(np.asanyarray(g.sum(axis=axes), g.dtype), shape) if axes else g


def _added(total: Array | None, piece: Piece, shape: tuple[int, ...], lift: Lift) -> Array:
    """``total`` with the piece added at its places; of those that occur more than once, each."""
    places = np.reshape(piece.places, -1)
    value = np.reshape(piece.value, -1)
    if total is None:
        total = np.broadcast_to(lift(np.zeros(()), ""), shape).copy()
    flat = total.reshape(-1).copy()
    if (places[1:] > places[:-1]).all():
        flat[places] = flat[places] + value
        return flat.reshape(shape)
    order = np.argsort(places, kind="stable")
    new = np.diff(places[order], prepend=-1) != 0
    rank = (
        np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        if len(order)
        else order
    )
    for turn in range(int(rank.max(initial=-1)) + 1):
        now = order[rank == turn]
        flat[places[now]] = flat[places[now]] + value[now]
    return flat.reshape(shape)


def tape(y: Node) -> list[Node]:
    """The nodes that ``y`` depends on, the last one first."""
    reached, todo = {id(y): y}, [y]
    while todo:
        for parent, _ in todo.pop().pullbacks:
            if id(parent) not in reached:
                reached[id(parent)] = parent
                todo.append(parent)
    return sorted(reached.values(), key=attrgetter("born"), reverse=True)


def gradients(y: Node, seed: Array, wanted: list[Node], lift: Lift) -> list[Array]:
    """Pull the gradient ``seed`` of ``y`` back to the nodes ``wanted``.

    Raises ArithmeticError, naming the operation, where a ball or a rational has no derivative.
    """
    cotangents, wanted_ids = {id(y): seed}, {id(node) for node in wanted}
    for node in tape(y):
        cotangent = cotangents[id(node)]
        for parent, pullback in node.pullbacks:
            part, so_far = pullback(cotangent), cotangents.get(id(parent))
            if isinstance(part, Piece):
                part = _added(so_far, part, parent.raw.shape, lift)
            else:
                part = _unbroadcast(part, parent.raw.shape)
                part = part if so_far is None else so_far + part
            refuse_infinite(f"the derivative of {node.name}", part)
            cotangents[id(parent)] = Node(part, "").raw
        if id(node) not in wanted_ids:
            del cotangents[id(node)]
    return [
        cotangents[id(node)]
        if id(node) in cotangents
        else np.broadcast_to(lift(np.zeros(()), ""), node.raw.shape).copy()
        for node in wanted
    ]
