"""The field's acid test (``benchmarks.acid``): frameworks, adapters, faults, tables."""
