"""refnet: exact gradients of orthogonal recurrent and deep feedforward nets.

One training step passes through the package in this order:

1. ``tasks``: data -> Batch(x, y, mask)
2. ``matrices``: start values, OINIT and OPEN; transitions, which make up a weight matrix
3. ``cells``: forward and, directly beneath, backward, by hand; ``compiled``: the same in Numba
4. ``nets``: cells and layers with a read-out; the loss and every derivative of it
5. ``training``: optimizers, the step, the loop around it
6. ``runs``: the files that a run writes

Beneath them ``common`` and ``maths`` (arithmetic for any number type, activations, losses); beside
them ``exact`` (certified gradients), ``interop`` (PyTorch, JAX, ONNX, Keras), ``check`` (a judge
for other frameworks), ``analysis`` and
``explain`` (the papers' mathematics and their errata), ``studies`` (their tables) and ``book``
(derivations that run).
The names below are nets, their derivatives, tasks and training, and the packages
``refnet.analysis``, ``refnet.check``, ``refnet.exact``, ``refnet.stiefel``, ``refnet.tasks`` and
``refnet.transitions``. Each loads on first use, so ``import refnet`` takes almost no time.
"""

from typing import TYPE_CHECKING

from refnet.common.face import face
from refnet.common.version import __version__

if TYPE_CHECKING:
    from refnet import (
        analysis as analysis,
        check as check,
        exact as exact,
        stiefel as stiefel,
        tasks as tasks,
    )
    from refnet.batch import Batch as Batch
    from refnet.common.process import settle as settle
    from refnet.maths.activations import (
        ACTIVATIONS as ACTIVATIONS,
        Activation as Activation,
        activation as activation,
    )
    from refnet.matrices import transitions as transitions
    from refnet.matrices.initializers import initialize as initialize
    from refnet.nets.curvature import curvature_matrix as curvature_matrix, fvp as fvp, gnvp as gnvp
    from refnet.nets.feedforward import FeedforwardNet as FeedforwardNet
    from refnet.nets.gradients import (
        hvp as hvp,
        jvp as jvp,
        loss_and_gradients as loss_and_gradients,
        per_example_gradients as per_example_gradients,
    )
    from refnet.nets.recurrent import RecurrentNet as RecurrentNet
    from refnet.nets.stacked import StackedNet as StackedNet
    from refnet.nets.states import (
        state_gradients as state_gradients,
        state_jacobians as state_jacobians,
    )
    from refnet.tasks import make_task as make_task
    from refnet.training.config import Config as Config
    from refnet.training.load import load as load
    from refnet.training.loop import resume as resume, train as train
    from refnet.training.optimizers import optimizer as optimizer
    from refnet.training.saved import save as save
else:
    __getattr__, __dir__ = face(__name__, __file__)
