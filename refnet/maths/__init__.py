"""Arithmetic for any number type: products, elementary functions, linear algebra, activations,
losses, dual numbers."""
