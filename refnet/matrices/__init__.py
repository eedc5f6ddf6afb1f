"""Weight matrices: start values, orthogonalisation, steps on the Stiefel manifold, transitions."""
