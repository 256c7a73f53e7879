"""How a run ended: an integer for each lane, and a sentence that explains it."""

import enum


class Status(enum.IntEnum):
    """The state of a run: RUNNING (0), or why it ended; an int32 in every :class:`jaxht.Result`,
    one for each lane.

    =================  ====  ======================================================================
    name               code  meaning
    =================  ====  ======================================================================
    RUNNING            0     the run has not ended
    CONVERGED          1     x changes by no more than ``rtol ||x||``, or grad f = 0 at the start
    SUPPORT_STABLE     2     the support repeats
    FINISHED           3     the solver has taken all the steps that it is defined to take
    TARGET_REACHED     4     ``f(x) <= target_value``
    GAP_CLOSED         5     the duality gap is at most ``gap_rtol |f(x)|``
    NO_PROGRESS        6     no further step decreases f
    MAX_STEPS          7     the step limit was reached: a failure, like all codes below
    CYCLING            8     supports repeat in a cycle
    DIVERGED           9     f exceeds 1e8 times its start, or has become infinite or NaN
    REFIT_FAILED       10    the refit on the last support did not converge
    INVALID_DATA       11    f at zero is infinite or NaN, as are the data or their squares; or a
                             weight or ridge is negative
    INVALID_START      12    x0, or f at x0, is infinite or NaN
    INVALID_STEP_SIZE  13    the step size is not finite and positive
    NO_DUAL            14    l2 is not above 0 in a dual solver, whose problem then has no dual
    NO_MINIMISER       15    f has no minimiser on the last support: it is separable, without a ridge
    =================  ====  ======================================================================

    Refits find NO_MINIMISER; solvers that do not refit (IHT, NIHT, HSGHT) end as MAX_STEPS there. In
    float64 it agreed with linear programming in all of 2520 random problems. In float32 it was wrong
    in about 1 of 1000, where f falls along a line by less than its rounding: a refit may then be
    converged, with f at its infimum up to rounding.

    Solvers report SUPPORT_STABLE, FINISHED, NO_PROGRESS, CYCLING, INVALID_STEP_SIZE and NO_DUAL,
    the runner all others.

    With MAX_STEPS, CYCLING, REFIT_FAILED and NO_MINIMISER the solvers that may increase f in a step
    (CGIHT, FIHT, ALPS, HTP, PHT, CoSaMP, GraSP, and SubspacePursuit in its first step) return the
    best point of the run, its start included; with all other codes the last one.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> status = jaxht.Status[jaxht.solve(f, jaxht.Sparse(2), jaxht.OMP()).reason]
        >>> status.name, status.failed
        ('FINISHED', False)
    """

    RUNNING = 0
    CONVERGED = 1
    SUPPORT_STABLE = 2
    FINISHED = 3
    TARGET_REACHED = 4
    GAP_CLOSED = 5
    NO_PROGRESS = 6
    MAX_STEPS = 7
    CYCLING = 8
    DIVERGED = 9
    REFIT_FAILED = 10
    INVALID_DATA = 11
    INVALID_START = 12
    INVALID_STEP_SIZE = 13
    NO_DUAL = 14
    NO_MINIMISER = 15

    @property
    def sentence(self) -> str:
        """What happened and, for failures, what to change: one sentence for users."""
        return _SENTENCES[self]

    @property
    def failed(self) -> bool:
        """Whether :meth:`jaxht.Result.raise_for_status` raises for it."""
        return self >= Status.MAX_STEPS


_SENTENCES = {
    Status.RUNNING: "The run has not ended.",
    Status.CONVERGED: "The iterate stopped changing, relative to its size, within rtol.",
    Status.SUPPORT_STABLE: "The support repeated, so the iterate is a fixed point of the solver.",
    Status.FINISHED: "The solver completed the number of steps that it is defined to take.",
    Status.TARGET_REACHED: "The objective reached target_value.",
    Status.GAP_CLOSED: "The duality gap fell below gap_rtol.",
    Status.NO_PROGRESS: "No further step decreased the objective.",
    Status.MAX_STEPS: "The step limit was reached before any other test was met; "
    "raise Stop(max_steps=...).",
    Status.CYCLING: "The supports repeat in a cycle; a smaller step_size usually breaks it.",
    Status.DIVERGED: "The objective diverged; the last finite iterate is returned. "
    "Use a smaller step_size.",
    Status.REFIT_FAILED: "The run ended, but the refit on its last support did not converge; "
    "give l2 > 0.",
    Status.INVALID_DATA: "The objective is infinite or NaN before the first step, or a weight or l2 "
    "is negative; check A, y, weights and l2 for NaN, for infinity, and for numbers whose squares "
    "overflow.",
    Status.INVALID_START: "The start x0, or the objective there, is infinite or NaN; "
    "start elsewhere, or leave x0 out.",
    Status.INVALID_STEP_SIZE: "The step size is not finite and positive; give another "
    "step_size or, where it is None, rescale A, since the squares of its entries over- or "
    "underflow.",
    Status.NO_MINIMISER: "The objective has no minimiser on the last support: it decreases as "
    "coefficients grow without end, since the features separate the targets perfectly (separable "
    "data); give l2 > 0.",
    Status.NO_DUAL: "There is no dual without a ridge: l2 is not above 0; give l2 > 0.",
}
