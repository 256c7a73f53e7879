"""Linear operators of fast transforms and convolutions, with adjoints and the norms of their
columns; lanes under vmap are transformed together."""

from jaxht.designs.transforms import (
    circulant,
    partial_dct,
    partial_dft,
    partial_hadamard,
    toeplitz,
)

__all__ = ["circulant", "partial_dct", "partial_dft", "partial_hadamard", "toeplitz"]
