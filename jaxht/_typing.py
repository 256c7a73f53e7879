"""Types of arrays and numbers in annotations.

For type checkers they are those of chex, whose import takes 0.1 s. What stands for them at run time
holds there: tests/test_environment.py runs the library under beartype.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from chex import Array as Array
    from chex import ArrayDType as ArrayDType
    from chex import ArrayTree as ArrayTree
    from chex import Numeric as Numeric
    from chex import PRNGKey as PRNGKey

    #: An array in a field of a NamedTuple, whose constructor JAX also calls with shapes and axis
    #: numbers.
    Leaf = Array
else:
    Array = jax.Array | np.ndarray | np.bool_ | np.number
    Leaf = Any
    ArrayDType = jax.typing.DTypeLike
    ArrayTree = Any
    Numeric = Array | float | int
    PRNGKey = jax.Array | np.ndarray
