"""How far a selection can be trusted: resampling, knockoffs with control of false discoveries,
standard errors."""

from jaxht.diagnostics.inference.information import standard_errors
from jaxht.diagnostics.inference.model_x import (
    Knockoffs,
    gaussian_knockoffs,
    knockoff_threshold,
    knockoffs,
)
from jaxht.diagnostics.inference.resampling import (
    Bootstrap,
    Stability,
    bootstrap,
    stability_selection,
)

__all__ = [
    "Bootstrap",
    "Knockoffs",
    "Stability",
    "bootstrap",
    "gaussian_knockoffs",
    "knockoff_threshold",
    "knockoffs",
    "stability_selection",
    "standard_errors",
]
