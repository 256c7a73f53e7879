"""The inputs of the dense layers of a model, found in the program that JAX traces of it."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxht._programs import bounded_jit
from jaxht._typing import Array, ArrayTree, Leaf
from jaxht.objectives.moments import Moments

# Operations that hand on a weight as it is.
HAND_ON = {"convert_element_type", "copy", "optimization_barrier", "reduce_precision"}
# Calls, by the names of the programs that they call.
CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class DenseInputs(NamedTuple):
    """What is multiplied with a weight matrix.

    Attributes:
        inputs: (samples, inputs), those of all products with the matrix.
        axis: of the matrix along which its inputs lie, 0 or 1.
    """

    inputs: Leaf
    axis: int


class _Weight(NamedTuple):
    """Where a variable of the program comes from: a parameter, or its transpose."""

    name: str
    is_transposed: bool


def capture(apply: Callable[..., Any], params: ArrayTree, *args: Any) -> dict[str, DenseInputs]:
    """What the weight matrices of a model are multiplied with, in the order of the products.

    Every product ``x W`` or ``W x`` with a two-dimensional parameter is found in the program that
    JAX traces of ``apply``, also within functions that it calls and under ``vmap``: the model need
    not be written for it. Products within loops, such as layers in ``lax.scan``, are not found.

    Args:
        apply: a function of the parameters and further arguments. Of Flax NNX ``lambda state, x:
            nnx.merge(graphdef, state)(x)`` with ``graphdef, state = nnx.split(model)``; of Equinox
            ``lambda params, x: jax.vmap(eqx.combine(params, static))(x)`` with ``params, static =
            eqx.partition(model, eqx.is_array)``.
        params: pytree of arrays.
        args: the further arguments.

    Returns:
        :class:`DenseInputs` by the names of the parameters, those of
        ``jax.tree_util.keystr``.

    Cost: that of ``apply``.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import pruning
        >>> params = {"hidden": jnp.ones((3, 4)), "out": jnp.ones((4, 2))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["hidden"]) @ params["out"]
        >>> found = pruning.capture(apply, params, jnp.ones((5, 3)))
        >>> {name: layer.inputs.shape for name, layer in found.items()}
        {"['hidden']": (5, 3), "['out']": (5, 4)}
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    program = jax.make_jaxpr(apply)(params, *args)
    values = jax.tree.leaves((params, args))
    weights: list[_Weight | None] = [None] * len(values)
    for i, (path, leaf) in enumerate(leaves):
        if jnp.ndim(leaf) == 2:
            weights[i] = _Weight(jax.tree_util.keystr(path), False)
    found: dict[str, DenseInputs] = {}
    _evaluate(program.jaxpr, program.consts, values, weights, found)
    return found


def gram_matrices(
    apply: Callable[..., Any], params: ArrayTree, batches: Iterable[Any]
) -> dict[str, Array]:
    """The Gram matrices ``X'X`` of the inputs of the dense layers of a model, over batches.

    Sums are compensated, see :class:`jaxht.Moments`.

    Args:
        apply: as of :func:`jaxht.pruning.capture`.
        params: as there.
        batches: the arguments of ``apply`` beside the parameters, each an array or a tuple of
            arrays; batches of the same shape share a program.

    Returns:
        Arrays (inputs, inputs) by the names of the parameters, in the order of the products.

    Cost: that of ``apply``, and ``n d^2`` for n inputs of d entries of each layer.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import pruning
        >>> batches = [jnp.eye(2), jnp.ones((1, 2))]
        >>> pruning.gram_matrices(lambda W, x: x @ W, jnp.ones((2, 3)), batches)[""].tolist()
        [[2.0, 1.0], [1.0, 2.0]]
    """

    sums: dict[str, Moments] = {}
    names: dict[str, int] = {}
    for batch in batches:
        args = batch if isinstance(batch, tuple) else (batch,)
        if not sums:
            # The results of a program are in the order of the alphabet.
            names = layer_axes(apply, params, args)
            sums = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                jax.eval_shape(functools.partial(_sums_of_batch, apply), params, args),
            )
        sums = _add_batch(apply, params, sums, args)
    return {name: sums[name].corrected[0] for name in names}


def layer_axes(
    apply: Callable[..., Any], params: ArrayTree, args: tuple[Any, ...]
) -> dict[str, int]:
    """Along which axis of each weight matrix its inputs lie, without running the model."""
    axes: dict[str, int] = {}

    def trace(params, args):
        axes.update({name: found.axis for name, found in capture(apply, params, *args).items()})

    jax.eval_shape(trace, params, args)
    return axes


def _sums_of_batch(
    apply: Callable[..., Any], params: ArrayTree, args: tuple[Any, ...]
) -> dict[str, Moments]:
    """The moments of one batch, of inputs without targets."""
    sums = {}
    for name, (inputs, _) in capture(apply, params, *args).items():
        X = inputs.astype(jnp.result_type(inputs, jnp.float32))
        sums[name] = Moments.zero(X.shape[1], 0, X.dtype).add(X, X[:, :0])
    return sums


@functools.partial(bounded_jit, static_argnums=0)
def _add_batch(
    apply: Callable[..., Any],
    params: ArrayTree,
    sums: dict[str, Moments],
    args: tuple[Any, ...],
) -> dict[str, Moments]:
    """The sums with those of a further batch."""
    added = _sums_of_batch(apply, params, args)
    return {name: moments.merge(added[name]) for name, moments in sums.items()}


def _evaluate(
    program: Jaxpr,
    consts: Any,
    values: list[Any],
    weights: list[_Weight | None],
    found: dict[str, DenseInputs],
) -> tuple[list[Any], list[_Weight | None]]:
    """Run a program, and note what weights are multiplied with."""
    known: dict[Any, Any] = dict(zip(program.constvars, consts, strict=True))
    known |= dict(zip(program.invars, values, strict=True))
    origin: dict[Any, _Weight | None] = dict(zip(program.invars, weights, strict=True))

    def read(atom):
        return atom.val if isinstance(atom, Literal) else known[atom]

    def weight_of(atom):
        return None if isinstance(atom, Literal) else origin.get(atom)

    for equation in program.eqns:
        inputs = [read(atom) for atom in equation.invars]
        tags = [weight_of(atom) for atom in equation.invars]
        called = _called_program(equation, len(inputs))
        if called is not None:
            results, marks = _evaluate(called.jaxpr, called.consts, inputs, tags, found)
        else:
            if equation.primitive.name == "dot_general":
                _note_product(equation.params["dimension_numbers"], inputs, tags, found)
            bound = equation.primitive.get_bind_params(equation.params)
            # Before JAX 0.10 there are functions beside the options.
            functions, options = bound if isinstance(bound, tuple) else ((), bound)
            results = equation.primitive.bind(*functions, *inputs, **options)
            if not equation.primitive.multiple_results:
                results = [results]
            marks = [_handed_on(equation, tags)] * len(results)
        known |= dict(zip(equation.outvars, results, strict=True))
        origin |= dict(zip(equation.outvars, marks, strict=True))
    return [read(atom) for atom in program.outvars], [weight_of(atom) for atom in program.outvars]


def _called_program(equation: Any, num_inputs: int) -> ClosedJaxpr | None:
    """The program that an operation calls with the arguments that it has, if it does."""
    for name in CALLED:
        called = equation.params.get(name)
        if isinstance(called, Jaxpr):
            called = ClosedJaxpr(called, ())
        if isinstance(called, ClosedJaxpr) and len(called.jaxpr.invars) == num_inputs:
            is_loop = equation.primitive.name in ("scan", "while", "cond")
            return None if is_loop else called
    return None


def _handed_on(equation: Any, tags: list[_Weight | None]) -> _Weight | None:
    """Where the result of an operation comes from."""
    if not tags or tags[0] is None:
        return None
    if equation.primitive.name in HAND_ON:
        return tags[0]
    if equation.primitive.name == "transpose":
        is_swap = tuple(equation.params["permutation"]) == (1, 0)
        return tags[0]._replace(is_transposed=tags[0].is_transposed ^ is_swap)
    return None


def _note_product(
    dimensions: Any,
    inputs: list[Any],
    tags: list[_Weight | None],
    found: dict[str, DenseInputs],
) -> None:
    """Note the other factor of a product with a weight, its contracted axis last."""
    contracted, batched = dimensions
    for side in (0, 1):
        weight = tags[side]
        if weight is None or len(contracted[side]) != 1 or batched[side]:
            continue
        other = inputs[1 - side]
        rows = jnp.moveaxis(other, contracted[1 - side][0], -1)
        rows = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
        axis = contracted[side][0] ^ weight.is_transposed
        before = found.get(weight.name)
        if before is not None and before.axis == axis:
            rows = jnp.concatenate([before.inputs, rows])
        found[weight.name] = DenseInputs(rows, axis)
