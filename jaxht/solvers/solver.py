"""The protocol of a solver.

A solver is a frozen dataclass of numbers with two pure methods::

    init(objective, constraint, x0, key) -> (iterate, state, info)
    step(objective, constraint, iterate, state) -> (iterate, state, info)

It contains no loop over steps, no tolerance, no jit and no printing: :mod:`jaxht.runner` runs every
solver with the same loop and the same stopping tests, so that methods can be compared. The iterate
is the point with its products, so that none is computed twice; the state is any pytree, None if the
solver needs none; and the info says what this one call has cost and found.
"""

from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.solvers.iterate import Info, Iterate

State = TypeVar("State")

#: What ``init`` and ``step`` return: the iterate, the solver's state, and what the call has cost.
Step = tuple[Iterate, State, Info]


@runtime_checkable
class Solver(Protocol):
    """What the runner requires of a solver; a solver that inherits from it gets the defaults of the
    class variables.

    A solver's own methods name the types of objective and constraint that it accepts; here they are
    not named, so that all solvers are of one type.
    """

    #: The fixed-point test: whether an ``x`` that did not change in a step never changes again.
    #: Only then does the runner compare its change with rtol.
    fixed_point_test: ClassVar[bool] = False
    #: Whether :func:`jaxht.solve` must be given a PRNG key.
    needs_key: ClassVar[bool] = False
    #: Whether a run with a larger k starts with the same steps, so that :func:`jaxht.path` needs a
    #: single run.
    nested: ClassVar[bool] = False
    #: Whether a step reads entries of x; else it takes linear combinations and projections alone,
    #: and x may be known by its products.
    needs_entries: ClassVar[bool] = True
    #: Whether a step may take several calls of ``step``, of which all but the last have
    #: ``Info.ends_step = False``: a lane then takes its tries as turns of the run's loop, and lanes
    #: beside it do not wait.
    takes_turns: ClassVar[bool] = False
    #: Whether columns of zeros and samples of weight 0 leave every step as it is, so that
    #: :func:`jaxht.solve` may round shapes up to those of a compiled program.
    ignores_empty_columns: ClassVar[bool] = False
    #: Whether x may be complex: steps take the real inner product ``Re(u^H v)``, and order entries
    #: by their magnitude.
    takes_complex: ClassVar[bool] = False
    #: Whether a penalty takes the place of the constraint, which then leaves x free.
    is_penalised: ClassVar[bool] = False
    #: The step limit where :class:`jaxht.Stop` gives none; for one that depends on the constraint a
    #: solver has its own ``max_steps``.
    step_limit: ClassVar[int] = 1_000
    #: Whether f may increase in a step, so that a run that ends with MAX_STEPS, CYCLING or
    #: REFIT_FAILED returns the best point that it met: the runner then keeps that point as well.
    keeps_best: ClassVar[bool] = False

    @property
    def fixed_point_steps(self) -> int:
        """How many steps in a row must leave x as it is: 2 where a step also takes the difference
        between x and the x before it."""
        return 1

    def max_steps(self, constraint: Any) -> Numeric:
        """The step limit where :class:`jaxht.Stop` gives none."""
        return self.step_limit

    def local_objective(self, objective: Any, x: Any) -> Any:
        """The function that a result x minimises on its support, by which the result is
        differentiated: the objective; None, if a penalty makes that none."""
        return None if self.is_penalised else objective

    def init(self, objective: Any, constraint: Any, x0: Array, key: PRNGKey | None) -> Step[Any]:
        """The iterate at the feasible point x0, and the solver's state.

        Raises:
            ValueError: for an objective, a constraint or an argument that the solver does not
            accept.
        """
        ...

    def step(self, objective: Any, constraint: Any, iterate: Iterate, state: Any) -> Step[Any]:
        """Take a step of the algorithm, or a turn of one, see ``takes_turns``."""
        ...
