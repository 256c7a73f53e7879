"""The loop over the steps of a solver, with every stopping test; paths in k, and the choice of k by
validation."""

from jaxht.runner._default import default_solver as default_solver
from jaxht.runner._path import path as path
from jaxht.runner._path import sparsities as sparsities
from jaxht.runner._solve import Carry as Carry
from jaxht.runner._solve import Problem as Problem
from jaxht.runner._solve import Result as Result
from jaxht.runner._solve import Stop as Stop
from jaxht.runner._solve import advance as advance
from jaxht.runner._solve import call_on_device as call_on_device
from jaxht.runner._solve import finish as finish
from jaxht.runner._solve import prepare as prepare
from jaxht.runner._solve import solve as solve
from jaxht.runner._solve import start as start
from jaxht.runner._solve import trace as trace
from jaxht.runner._validation import Validation as Validation
from jaxht.runner._validation import cross_validate as cross_validate
from jaxht.runner._validation import folds as folds
from jaxht.runner._validation import validate as validate
