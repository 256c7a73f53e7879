"""How far a selection can be trusted: resampling, knockoffs with control of false discoveries,
standard errors."""

from jaxht.diagnostics.inference import (
    Bootstrap,
    Knockoffs,
    Stability,
    bootstrap,
    gaussian_knockoffs,
    knockoff_threshold,
    knockoffs,
    stability_selection,
    standard_errors,
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
