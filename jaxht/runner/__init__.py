"""The loop over the steps of a solver, with every stopping test; paths in k, and the choice of k by
validation."""

from jaxht.runner._default_solver import default_solver
from jaxht.runner._loop import Carry, advance, finish, one_turn, start
from jaxht.runner._padding import disable_padding
from jaxht.runner._path import path
from jaxht.runner._problem import Problem, prepare
from jaxht.runner._result import Result
from jaxht.runner._solve import call_on_device, solve, trace
from jaxht.runner._stop import Stop
from jaxht.runner._validation import Validation, cross_validate, folds, validate

__all__ = [
    "Carry",
    "Problem",
    "Result",
    "Stop",
    "Validation",
    "advance",
    "call_on_device",
    "cross_validate",
    "default_solver",
    "disable_padding",
    "finish",
    "folds",
    "one_turn",
    "path",
    "prepare",
    "solve",
    "start",
    "trace",
    "validate",
]
