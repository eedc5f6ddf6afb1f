"""A watched run's records at every evaluation besides its metrics: quantities of its matrices and
gradients.

Source: the quantities of Manchev & Spratling, Figures 2 and 3b, and of Vorontsov et al., Figures 2
and 3. Checked by: tests/training/test_loaded_runs.py.
"""

import numpy as np

from refnet.analysis.flow import gradient_norms
from refnet.analysis.spectra import henrici, singular_values, spectral_radius
from refnet.batch import Array, Batch, Params, examples, last_steps
from refnet.matrices.orthogonality import defect
from refnet.nets.gradients import loss_and_gradients
from refnet.nets.recurrent import RecurrentNet
from refnet.runs.read import Record
from refnet.training.experiment import Experiment

SEQUENCES, TIMES = 16, 101
"""Of how many sequences the gradient is followed back through time, and at how many steps kept."""


def _matrix(W: Array) -> dict[str, float]:
    s = singular_values(W)
    square = W.shape[0] == W.shape[1]
    return {
        "s_min": s.smallest,
        "s_mean": s.mean,
        "s_max": s.largest,
        "s_sd": s.sd,
        "defect": float(defect(W.astype(np.float64))),
        **({"spectral_radius": spectral_radius(W), "henrici": henrici(W)} if square else {}),
    }


def observed(experiment: Experiment, params: Params, batch: Batch) -> Record:
    """Facts for a row, on an evaluation batch.

    "matrices": for each by name the summary of its singular values, its defect ||W W' - I||^2 (if
    tall ||W'W - I||^2) and, if square, its spectral radius and Henrici's departure from normality.
    "gradients": the norm of the loss's gradient (without penalties) in each parameter over the
    whole batch, and "gradient_norm", that of all together. Of a recurrent net of one direction
    "flow": ||dL/dh_t|| for the loss of the last step, of the first sequences, at the times
    "flow_at" from 0 to the longest one's last step.

    >>> from refnet.training.config import Config
    >>> from refnet.training.experiment import build
    >>> experiment = build(Config("copy", length=20, hidden=4, backend="reference"))
    >>> params, _ = experiment.start()
    >>> facts = observed(experiment, params, experiment.task.batch(0, 2, seed=0))
    >>> sorted(facts)
    ['flow', 'flow_at', 'gradient_norm', 'gradients', 'matrices']
    """
    net = experiment.net
    gradients = loss_and_gradients(net, params, batch, inputs=False).gradients
    norms = {name: float(np.linalg.norm(gradients[name].astype(np.float64))) for name in params}
    facts: Record = {
        "matrices": {
            name: _matrix(W)
            for name, W in experiment.matrices_of(params, experiment.matrices).items()
        },
        "gradients": norms,
        "gradient_norm": float(np.sqrt(sum(norm**2 for norm in norms.values()))),
    }
    if isinstance(net, RecurrentNet) and not getattr(net, "bidirectional", False):
        first = examples(batch, slice(SEQUENCES), net.readout == "every")
        if first.mask is not None:  # no further than the longest of them
            T = last_steps(first.mask).max(initial=1)
            y = first.y[:T] if net.readout == "every" else first.y
            first = Batch(first.x[:T], y, first.mask[:T])
        flow = gradient_norms(net, params, first)
        at = np.unique(np.linspace(0, len(flow) - 1, TIMES).astype(int))
        facts |= {"flow": flow[at].tolist(), "flow_at": at.tolist()}
    return facts
