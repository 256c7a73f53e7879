"""Which objectives the diagnostics accept."""

from typing import NoReturn, cast

from jaxht.linalg.inner_products import check_real
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective


def linear_model(objective: Objective, requirement: str) -> LinearModel:
    """The objective, prepared; a ValueError names the requirement if it is no linear model."""
    if not objective.is_linear_model:
        refuse(objective, requirement)
    check_real(objective)
    return cast(LinearModel, objective.prepare())


def likelihood(objective: Objective) -> LinearModel:
    """The objective, prepared; a ValueError if its loss is no logarithm of a likelihood."""
    requirement = (
        "a linear model with the logarithm of a likelihood for its loss: squared errors, logistic, "
        "softmax, ordinal, Poisson, gamma or Cox"
    )
    model = linear_model(objective, requirement)
    if model.loss.family is None:
        refuse(objective, requirement)
    return model


def refuse(objective: Objective, requirement: str) -> NoReturn:
    """Raise the error for an objective that does not meet a requirement."""
    raise ValueError(f"objective must be {requirement}; got {type(objective).__name__}")
