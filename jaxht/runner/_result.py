"""What a run returns."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import known_values
from jaxht._dataclass import integer, pytree, static
from jaxht._repr import describe, short_repr
from jaxht.solvers.iterate import Counts
from jaxht.solvers.status import Status

__all__ = ["Result"]

_STATUS_NAMES = {status.value: status.name for status in Status}


@pytree
class Result:
    """The result of a run; under vmap every field has the lanes as its first axes.

    Attributes:
        x: the solution, shaped like the variable, exactly feasible: the last iterate; where a
            solver that may increase f ends with MAX_STEPS, CYCLING, REFIT_FAILED or NO_MINIMISER,
            the best one, see :class:`jaxht.Status`.
        support: a :class:`jaxht.Support` of x: ``numpy()``, its indices in increasing order on the
            host; ``mask``, shaped like x; for programs ``indices`` (k_max,), padded with the size
            of x. For matrices of low rank a :class:`jaxht.Subspace` with bases ``U`` and ``V``.
        value: f(x).
        num_steps: int32, number of steps taken, including those after the returned x.
        status: int32, a :class:`jaxht.Status`; see also ``succeeded`` and ``reason``.
        counts: gradients and projections, a :class:`jaxht.extend.Counts`; ``counts.ifo`` on the
            host.
        gap: for dual solvers f(x) minus the best dual value, plus a bound of the rounding errors of
            both, so that it is never below f(x) minus the optimum; else None.
        solver: the solver that was chosen, as text, where none was given; else empty. Static.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.OMP())
        >>> result.support.numpy().tolist(), float(result.value), int(result.num_steps)
        ([1, 3], 2.5, 2)
        >>> bool(result.succeeded), result.reason
        (True, 'FINISHED')
        >>> result
        Result(status=FINISHED, value=2.5, num_steps=2, x=float32[4], support=Support(size=2, mask=bool[4]))
    """

    # For type checkers the types of the common case: what a solver returns is JAX's, on a support
    # that has a mask. The other case is x in factors.
    x: jax.Array | Any
    support: Any
    value: jax.Array
    num_steps: jax.Array = integer()
    status: jax.Array = integer()
    counts: Counts = Counts()
    gap: Any = None
    solver: str = static(default="")

    @property
    def succeeded(self) -> jax.Array:
        """Whether the run has ended without a failure, bool, one for each lane; also under jit."""
        return (self.status > Status.RUNNING) & (self.status < Status.MAX_STEPS)

    @property
    def reason(self) -> Any:
        """The name of the :class:`jaxht.Status`, a str, or an array of one str for each lane."""
        codes = np.asarray(self.status)
        names = [_status_name(code) for code in codes.ravel().tolist()]
        return names[0] if codes.ndim == 0 else np.array(names, str).reshape(codes.shape)

    def raise_for_status(self) -> "Result":
        """Return this result, unless the run of a lane has failed: MAX_STEPS (7), or a code above.

        Raises:
            RuntimeError: on the host, with the number of lanes of each failure, and a sentence
            about it.
        """
        codes = np.asarray(self.status)
        messages = []
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            status = Status(int(code))
            if status.failed:
                messages.append(f"{count} of {codes.size} runs {status.name}: {status.sentence}")
        if messages:
            raise RuntimeError(" ".join(messages))
        return self

    def __repr__(self) -> str:
        fields: dict[str, Any] = {}
        lanes = jnp.shape(self.status)
        if lanes:
            fields["batch"] = f"{lanes}"
        if self.solver:
            fields["solver"] = self.solver
        fields["status"] = _describe_status(self.status)
        fields["value"] = self.value
        fields["num_steps"] = self.num_steps
        if self.gap is not None:
            fields["gap"] = self.gap
        return short_repr(self, **fields, x=self.x, support=self.support)


def _status_name(code: int) -> str:
    return _STATUS_NAMES.get(code, str(code))


def _describe_status(status: Any) -> str:
    codes = known_values(status)
    if codes is None or codes.dtype.kind != "i":
        return describe(status)
    if codes.ndim == 0:
        return _status_name(int(codes))
    counts = Counter(np.sort(codes, axis=None).tolist())
    return "{" + ", ".join(f"{_status_name(code)}: {n}" for code, n in counts.items()) + "}"
