"""What recurrent matrices, nets and random starts do to signals, gradients and memory.

``spectra``: eigenvalues, singular values, the Schur form. ``powers`` of a matrix. ``memory`` in
noise. ``flow`` of gradients through time. ``variance`` through depth. ``orthogonalization`` by
descent. ``geometry`` of steps on the manifold. ``refnet explain`` prints and draws them.
"""

from typing import TYPE_CHECKING

from refnet.common.face import face

if TYPE_CHECKING:
    from refnet.analysis.flow import (
        gradient_norms as gradient_norms,
        jacobian_spectra as jacobian_spectra,
        lyapunov_exponents as lyapunov_exponents,
        lyapunov_spectrum as lyapunov_spectrum,
        step_bounds as step_bounds,
    )
    from refnet.analysis.geometry import (
        defect_over_steps as defect_over_steps,
        descents as descents,
        margin_steps as margin_steps,
        retraction_errors as retraction_errors,
    )
    from refnet.analysis.memory import (
        chain_memory as chain_memory,
        fisher_memory as fisher_memory,
        noise_covariance as noise_covariance,
        normal_memory as normal_memory,
        peak_order as peak_order,
        signal_to_noise as signal_to_noise,
        total_memory as total_memory,
    )
    from refnet.analysis.orthogonalization import (
        basin as basin,
        defect_moments as defect_moments,
        gaussian_moments as gaussian_moments,
        orthogonalization_experiment as orthogonalization_experiment,
        singular_value_map as singular_value_map,
        uniform_moments as uniform_moments,
    )
    from refnet.analysis.powers import (
        fibonacci as fibonacci,
        power_norms as power_norms,
        power_radii as power_radii,
    )
    from refnet.analysis.spectra import (
        henrici as henrici,
        numerical_range as numerical_range,
        pseudospectrum as pseudospectrum,
        schur_form as schur_form,
        singular_values as singular_values,
        spectral_radius as spectral_radius,
    )
    from refnet.analysis.variance import (
        predicted_variances as predicted_variances,
        simulated_variances as simulated_variances,
    )
else:
    __getattr__, __dir__ = face(__name__, __file__)
