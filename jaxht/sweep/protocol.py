"""What a sweep runs: a function of a key and a cell, or a trial in steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._repr import describe
from jaxht._typing import Array, Numeric, PRNGKey

__all__ = ["Cell", "Run", "Trial"]


@dataclass(frozen=True)
class Cell:
    """The cell of the grid that a trial belongs to; ``cell["K"]`` is its coordinate on the axis K.

    Attributes:
        coordinates: value by axis: Python values on static axes, traced scalars on the others.
        bounds: static upper bounds of the coordinates that are rounded up, by axis.
        key: PRNG key of what trials share: those of a cell, and those of all cells that agree on
            the axes ``shared``. What is computed from it and from shared coordinates alone is held
            once for all of them, and products with a shared matrix are matrix-matrix products.

    Example:
        >>> import jax
        >>> from jaxht import sweep
        >>> sweep.Cell({"solver": "HTP", "K": 3}, {}, jax.random.key(0))["K"]
        3
    """

    coordinates: Mapping[str, Any]
    bounds: Mapping[str, int]
    key: PRNGKey

    def __getitem__(self, axis: str) -> Any:
        return self.coordinates[axis]


@runtime_checkable
class Run(Protocol):
    """A trial in steps, whose lane is given to another trial as soon as it ends. All methods are
    pure functions.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import sweep
        >>> class Countdown:  # as many steps as are drawn
        ...     def draw(self, key, cell):
        ...         return jax.random.randint(key, (), 1, cell["length"] + 1)
        ...     def start(self, case):
        ...         return jnp.zeros((), jnp.int32)
        ...     def running(self, carry):
        ...         return carry >= 0
        ...     def advance(self, case, carry):
        ...         stepped = jnp.where(carry + 1 >= case, -case, carry + 1)
        ...         return jnp.where(carry < 0, carry, stepped)
        ...     def finish(self, case, carry):
        ...         return {"steps": -carry}
        >>> isinstance(Countdown(), sweep.Run)
        True
        >>> results = sweep.run(Countdown(), {"length": [1, 50]}, num_trials=20)
        >>> int(results.steps.sel(length=1).max())
        1
    """

    def draw(self, key: PRNGKey, cell: Cell) -> Any:
        """The case: all that stays fixed during the run, a pytree. What is the same for all keys is
        held once."""
        ...

    def start(self, case: Any) -> Any:
        """The carry before the first step, a pytree."""
        ...

    def running(self, carry: Any) -> Array:
        """Whether there are steps to take, a boolean scalar."""
        ...

    def advance(self, case: Any, carry: Any) -> Any:
        """The carry after one more step, or a part of one that costs as much; that of an ended run
        stays as it is."""
        ...

    def finish(self, case: Any, carry: Any) -> Mapping[str, Numeric]:
        """The results, scalars by name."""
        ...


Trial = Callable[[PRNGKey, Cell], Mapping[str, Numeric]]


def to_scalars(results: Any) -> dict[str, Array]:
    """What a trial returns as scalars of dtypes that files can hold; ValueError for all else."""
    if not isinstance(results, Mapping):
        raise ValueError(f"a trial must return a dict of scalars; got {describe(results)}")
    for name in results:
        if not isinstance(name, str):
            raise ValueError(f"a trial must name its results by strings; got {name!r}")
    return {name: _to_scalar(name, value) for name, value in results.items()}


def _to_scalar(name: str, value: Any) -> Array:
    try:
        number = jnp.asarray(value)
    except OverflowError as error:
        raise ValueError(
            f"a trial returns {name!r} = {describe(value)}, beyond JAX's integers: return a float"
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a trial must return numbers and booleans; {name!r} is {describe(value)}"
        ) from error
    if jnp.issubdtype(number.dtype, jax.dtypes.prng_key) or number.dtype == jax.dtypes.float0:
        raise ValueError(
            f"a trial must return numbers and booleans; {name!r} has dtype {number.dtype}"
        )
    if number.ndim:
        raise ValueError(f"a trial must return scalars; {name!r} has shape {number.shape}")
    return number.astype(_storable(number.dtype))


def _storable(dtype: Any) -> Any:
    """The dtype of NumPy's own that holds all numbers of a dtype: others, such as bfloat16, are
    unknown to formats of files."""
    if dtype.isbuiltin == 1:
        return dtype
    if jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(np.float32)
    return np.dtype(np.int8 if jnp.issubdtype(dtype, jnp.signedinteger) else np.uint8)


@dataclass(frozen=True, eq=False)
class FunctionRun:
    """A function (key, cell) -> results as a :class:`Run` without steps."""

    trial: Trial

    def draw(self, key: PRNGKey, cell: Cell) -> dict[str, Array]:
        """The results."""
        return to_scalars(self.trial(key, cell))

    def start(self, case: Any) -> None:
        """Nothing."""

    def running(self, carry: None) -> Array:
        """False."""
        return jnp.zeros((), bool)

    def advance(self, case: Any, carry: None) -> None:
        """Nothing."""

    def finish(self, case: dict[str, Array], carry: None) -> dict[str, Array]:
        """The results."""
        return case
