"""How a run ended, as an integer per lane with a sentence for each."""

import enum


class Status(enum.IntEnum):
    """State of one lane: 0 while it runs, otherwise why it ended. Solvers report the verdicts, the runner the rest."""

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

    @property
    def sentence(self) -> str:
        """What happened, for people."""
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
    Status.MAX_STEPS: "The step limit was reached before any other test was met; raise Stop(max_steps=...).",
    Status.CYCLING: "The supports repeat in a cycle; a smaller step_size usually breaks it.",
    Status.DIVERGED: "The objective blew up or is not finite, or the step size is not finite and positive; the last "
    "finite iterate is returned. Use a smaller step_size, and check the data for NaN and for squares that overflow.",
    Status.REFIT_FAILED: "The run ended, but the minimisation of f on its last support did not converge: f may "
    "have no minimiser there, as on separable data without a ridge; give l2 > 0.",
}
