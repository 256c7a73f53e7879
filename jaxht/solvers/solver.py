"""The protocol of a solver.

A solver is a frozen dataclass of numbers with two pure methods::

    init(objective, constraint, x0, key) -> (iterate, state)
    step(objective, constraint, iterate, state) -> (iterate, state)

It holds no loop over steps, no tolerance, no jit and no printing: :mod:`jaxht.runner` runs every solver with the same
loop and the same stopping tests, which keeps methods comparable. ``state`` is any pytree of its own, None if it
needs none. What a step has at hand it passes on in the iterate, so that no product is done twice.
"""

from typing import Any, ClassVar, Protocol, TypeVar

from chex import Array, Numeric, PRNGKey

from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Iterate

O_contra = TypeVar("O_contra", bound=Objective, contravariant=True)
C_contra = TypeVar("C_contra", bound=Constraint, contravariant=True)


class Solver(Protocol[O_contra, C_contra]):
    """What the runner asks of a solver; one that inherits from this takes the class variables from here.

    ``Solver[O, C]`` names the kinds of objective and constraint that a solver can take.
    """

    #: The fixed-point test: whether an ``x`` that repeats will repeat for ever. Only then does the runner compare its
    #: change with rtol.
    fixed_point_test: ClassVar[bool] = False
    #: Whether ``solve`` must be given a PRNG key.
    needs_key: ClassVar[bool] = False
    #: Whether a run with a larger k begins like this one, so that :func:`jaxht.path` takes one run.
    nested: ClassVar[bool] = False
    #: Whether iterates may be :class:`jaxht.Factored`.
    takes_factors: ClassVar[bool] = False

    def max_steps(self, constraint: C_contra) -> Numeric:
        """Step limit where :class:`jaxht.Stop` gives none."""
        ...

    def init(self, objective: O_contra, constraint: C_contra, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """The iterate at the feasible point x0, and the solver's state; ValueError for what the solver cannot take."""
        ...

    def step(self, objective: O_contra, constraint: C_contra, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """One step of the algorithm."""
        ...
