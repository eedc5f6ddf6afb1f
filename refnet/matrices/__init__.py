"""Weight matrices: start values, orthogonalization, steps on the Stiefel manifold, transitions."""
