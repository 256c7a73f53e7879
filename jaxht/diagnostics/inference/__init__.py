"""How far a selection can be trusted: resampling, knockoffs with control of false discoveries,
standard errors."""

from jaxht.diagnostics.inference.information import standard_errors as standard_errors
from jaxht.diagnostics.inference.model_x import Knockoffs as Knockoffs
from jaxht.diagnostics.inference.model_x import gaussian_knockoffs as gaussian_knockoffs
from jaxht.diagnostics.inference.model_x import knockoff_threshold as knockoff_threshold
from jaxht.diagnostics.inference.model_x import knockoffs as knockoffs
from jaxht.diagnostics.inference.resampling import Bootstrap as Bootstrap
from jaxht.diagnostics.inference.resampling import Stability as Stability
from jaxht.diagnostics.inference.resampling import bootstrap as bootstrap
from jaxht.diagnostics.inference.resampling import stability_selection as stability_selection
