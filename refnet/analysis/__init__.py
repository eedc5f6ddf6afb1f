"""What a recurrent matrix does to signals, gradients and memory."""

from typing import TYPE_CHECKING

from refnet.face import face

if TYPE_CHECKING:
    from refnet.analysis.memory import (fisher_memory as fisher_memory,
                                        noise_covariance as noise_covariance,
                                        total_memory as total_memory)
    from refnet.analysis.spectra import (henrici as henrici, singular_values as singular_values,
                                         spectral_radius as spectral_radius)
else:
    __getattr__, __dir__, __all__ = face("refnet.analysis", {
        "refnet.analysis.memory": ("fisher_memory", "noise_covariance", "total_memory"),
        "refnet.analysis.spectra": ("henrici", "singular_values", "spectral_radius"),
    })
