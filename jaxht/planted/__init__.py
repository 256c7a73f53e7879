"""Planted problems, how well a solver recovers them, and what theory says of it."""
