"""Nets around cells and layers: forward, backward, and every derivative of their loss."""
