"""Pruning of trained networks: each layer as a sparse least-squares problem, from the Gram matrix
of its inputs."""

from jaxht.pruning.allocation import budgets
from jaxht.pruning.alps import ALPS
from jaxht.pruning.exchanges import Exchanges
from jaxht.pruning.inputs import DenseInputs, capture, gram_matrices
from jaxht.pruning.layer import Layer, Method, PrunedLayer
from jaxht.pruning.model import LayerReport, PrunedModel, prune_model
from jaxht.pruning.prune import prune_layer
from jaxht.pruning.scores import Magnitude, Wanda
from jaxht.pruning.sparsegpt import SparseGPT

__all__ = [
    "ALPS",
    "DenseInputs",
    "Exchanges",
    "Layer",
    "LayerReport",
    "Magnitude",
    "Method",
    "PrunedLayer",
    "PrunedModel",
    "SparseGPT",
    "Wanda",
    "budgets",
    "capture",
    "gram_matrices",
    "prune_layer",
    "prune_model",
]
