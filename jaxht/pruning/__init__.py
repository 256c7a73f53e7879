"""Pruning of trained networks: each layer as a sparse least-squares problem, from the Gram matrix
of its inputs."""

from jaxht.pruning.alps import ALPS
from jaxht.pruning.exchanges import Exchanges
from jaxht.pruning.layer import Layer, Method, PrunedLayer
from jaxht.pruning.prune import prune_layer
from jaxht.pruning.scores import Magnitude, Wanda
from jaxht.pruning.sparsegpt import SparseGPT

__all__ = [
    "ALPS",
    "Exchanges",
    "Layer",
    "Magnitude",
    "Method",
    "PrunedLayer",
    "SparseGPT",
    "Wanda",
    "prune_layer",
]
