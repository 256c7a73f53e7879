"""Linear operators of fast transforms, convolutions and wavelets, with adjoints and the norms of
their columns, and what puts operators together; lanes under vmap are transformed together."""

from jaxht.designs.combined import diagonal, hstack, identity, vstack
from jaxht.designs.nonuniform import nonuniform_dft
from jaxht.designs.transforms import (
    circulant,
    partial_dct,
    partial_dft,
    partial_hadamard,
    toeplitz,
)
from jaxht.designs.wavelets import wavelet, wavelet_parents

__all__ = [
    "circulant",
    "diagonal",
    "hstack",
    "identity",
    "nonuniform_dft",
    "partial_dct",
    "partial_dft",
    "partial_hadamard",
    "toeplitz",
    "vstack",
    "wavelet",
    "wavelet_parents",
]
