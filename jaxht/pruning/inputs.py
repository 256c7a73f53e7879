"""The inputs of the layers of a model, dense ones and convolutions, found in the program that JAX
traces of it."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxht._programs import bounded_jit
from jaxht._snapshot import Snapshot
from jaxht._typing import Array, ArrayTree, Leaf
from jaxht.objectives.moments import Moments

# Operations that hand on a weight as it is.
HAND_ON = {"convert_element_type", "copy", "optimization_barrier", "reduce_precision"}
# Operations that call a program with the arguments that they have, and the names of the programs.
CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "checkpoint",
    "remat",
    "remat2",
}
CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class DenseInputs(NamedTuple):
    """What is multiplied with an array of weights.

    Attributes:
        inputs: (samples, inputs), those of all products with the array; of a convolution the
            patches that it is applied to.
        axes: of the array along which its inputs lie, in their order; outputs lie along the others.
    """

    inputs: Leaf
    axes: tuple[int, ...]


def to_matrix(weights: Array, axes: tuple[int, ...]) -> Array:
    """The weights (inputs, outputs) of an array whose inputs lie along some axes."""
    order = _order(weights.ndim, axes)
    num_inputs = math.prod(weights.shape[axis] for axis in axes)
    return jnp.transpose(weights, order).reshape(num_inputs, -1)


def from_matrix(matrix: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The array of a shape whose weights (inputs, outputs) are given."""
    order = _order(len(shape), axes)
    ordered = matrix.reshape([shape[axis] for axis in order])
    back = [order.index(axis) for axis in range(len(order))]
    return jnp.transpose(ordered, back)


def _order(num_axes: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*axes, *(axis for axis in range(num_axes) if axis not in axes))


class _Weight(NamedTuple):
    """Where a variable of the program comes from: a parameter, its axes in some order."""

    name: str
    order: tuple[int, ...]


def capture(apply: Callable[..., Any], params: ArrayTree, *args: Any) -> dict[str, DenseInputs]:
    """What the weight matrices of a model are multiplied with, in the order of the products.

    Every product with a parameter, such as ``x W`` and ``W x``, also along several axes, as the
    projections of attention have, and every convolution with one is found in the program that JAX
    traces of ``apply``, also within functions that it calls and under ``vmap``: the model need not
    be written for it. Products within loops, such as layers in ``lax.scan``, and within
    ``lax.cond``, and convolutions by groups of features are not found; a parameter whose inputs lie
    along different axes in several products, ``x W`` and ``h W'``, is left out, too, and so is a
    kernel that is reversed first. An embedding ``E[ids]`` is no product: where it is tied to one,
    ``x E'``, that one counts.

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
    program = jax.make_jaxpr(apply)(params, *args)
    values = jax.tree.leaves((params, args))
    weights: list[_Weight | None] = [None] * len(values)
    for i, name in enumerate(parameter_names(params)):
        num_axes = jnp.ndim(values[i])
        if num_axes >= 2:
            weights[i] = _Weight(name, tuple(range(num_axes)))
    found: dict[str, DenseInputs | None] = {}
    _evaluate(program.jaxpr, program.consts, values, weights, found)
    return {name: layer for name, layer in found.items() if layer is not None}


def gram_matrices(
    apply: Callable[..., Any], params: ArrayTree, batches: Iterable[Any]
) -> dict[str, Array]:
    """The Gram matrices ``X'X`` of the inputs of the layers of a model, over batches.

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

    return _sum_up(apply, params, batches, None)


def gram_matrix(
    apply: Callable[..., Any], params: ArrayTree, batches: Iterable[Any], name: str
) -> Array:
    """The Gram matrix of one layer; what the model computes after it is left out."""
    return _sum_up(apply, params, batches, (name,))[name]


def _sum_up(
    apply: Callable[..., Any],
    params: ArrayTree,
    batches: Iterable[Any],
    names: tuple[str, ...] | None,
) -> dict[str, Array]:
    """The Gram matrices of some layers, or of all, for None."""
    apply = Snapshot.take(apply)
    sums: dict[str, Moments] = {}
    for batch in batches:
        args = arguments(batch)
        if names is None:
            names = tuple(layer_axes(apply, params, args))
        sums = _add_batch(apply, names, params, sums, args)
    return {name: sums[name].corrected[0] for name in names or ()}


def arguments(batch: Any) -> tuple[Any, ...]:
    """The arguments of a model beside its parameters: a tuple of arrays, or one array."""
    return batch if isinstance(batch, tuple) else (batch,)


def list_batches(batches: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The arguments of all batches.

    Raises:
        ValueError: where there are none.
    """
    found = [arguments(batch) for batch in batches]
    if not found:
        raise ValueError("batches must hold at least one batch; got none")
    return found


def parameter_names(params: ArrayTree) -> list[str]:
    """The names of all parameters, in the order of the leaves."""
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return [jax.tree_util.keystr(path) for path, _ in paths]


def layer_axes(
    apply: Callable[..., Any], params: ArrayTree, args: tuple[Any, ...]
) -> dict[str, tuple[int, ...]]:
    """Along which axes of each array of weights its inputs lie, without running the model."""
    axes: dict[str, tuple[int, ...]] = {}

    def trace(params, args):
        axes.update({name: found.axes for name, found in capture(apply, params, *args).items()})

    jax.eval_shape(trace, params, args)
    return axes


@functools.partial(bounded_jit, static_argnums=(0, 1))
def _add_batch(
    apply: Callable[..., Any],
    names: tuple[str, ...],
    params: ArrayTree,
    sums: dict[str, Moments],
    args: tuple[Any, ...],
) -> dict[str, Moments]:
    """The moments of inputs, without targets, with those of a further batch; at first of none."""
    found = capture(apply, params, *args)
    added = {}
    for name in names:
        inputs = found[name].inputs
        X = inputs.astype(jnp.result_type(inputs, jnp.float32))
        before = sums.get(name, Moments.zero(X.shape[1], 0, X.dtype))
        added[name] = before.add(X, X[:, :0])
    return added


def _evaluate(
    program: Jaxpr,
    consts: Any,
    values: list[Any],
    weights: list[_Weight | None],
    found: dict[str, DenseInputs | None],
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
            if equation.primitive.name == "conv_general_dilated":
                _note_convolution(equation.params, inputs, tags, found)
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
    if equation.primitive.name not in CALLS:
        return None
    for name in CALLED:
        called = equation.params.get(name)
        if isinstance(called, Jaxpr):
            called = ClosedJaxpr(called, ())
        if isinstance(called, ClosedJaxpr) and len(called.jaxpr.invars) == num_inputs:
            return called
    return None


def _handed_on(equation: Any, tags: list[_Weight | None]) -> _Weight | None:
    """Where the result of an operation comes from."""
    if not tags or tags[0] is None:
        return None
    if equation.primitive.name in HAND_ON:
        return tags[0]
    if equation.primitive.name == "transpose":
        order = tuple(tags[0].order[axis] for axis in equation.params["permutation"])
        return tags[0]._replace(order=order)
    return None


def _note_product(
    dimensions: Any,
    inputs: list[Any],
    tags: list[_Weight | None],
    found: dict[str, DenseInputs | None],
) -> None:
    """Note the other factor of a product with a weight, its contracted axes last."""
    contracted, batched = dimensions
    for side in (0, 1):
        weight = tags[side]
        along = contracted[side]
        if weight is None or not along or len(along) == len(weight.order) or batched[side]:
            continue
        other = inputs[1 - side]
        last = range(-len(along), 0)
        rows = jnp.moveaxis(other, contracted[1 - side], last)
        axes = tuple(weight.order[axis] for axis in along)
        _note(weight.name, rows, axes, found)


def _note_convolution(
    options: dict[str, Any],
    inputs: list[Any],
    tags: list[_Weight | None],
    found: dict[str, DenseInputs | None],
) -> None:
    """Note the patches that a convolution with a weight is applied to."""
    weight = tags[1]
    is_grouped = options["feature_group_count"] > 1 or options["batch_group_count"] > 1
    if weight is None or is_grouped:
        return
    dimensions = options["dimension_numbers"]
    _, feature, *spatial = dimensions.rhs_spec
    patches = lax.conv_general_dilated_patches(
        inputs[0],
        [inputs[1].shape[axis] for axis in spatial],
        options["window_strides"],
        options["padding"],
        options["lhs_dilation"],
        options["rhs_dilation"],
        dimensions,
    )
    # Their entries are the features, one after the other, each at all places.
    rows = jnp.moveaxis(patches, dimensions.out_spec[1], -1)
    axes = tuple(weight.order[axis] for axis in (feature, *spatial))
    _note(weight.name, rows, axes, found, num_axes=1)


def _note(
    name: str,
    inputs: Array,
    axes: tuple[int, ...],
    found: dict[str, DenseInputs | None],
    num_axes: int | None = None,
) -> None:
    """Add inputs, whose last axes are those of one sample; None for a weight whose inputs lie along
    different axes."""
    num_axes = len(axes) if num_axes is None else num_axes
    rows = inputs.reshape(-1, math.prod(inputs.shape[inputs.ndim - num_axes :]))
    before = found.get(name, DenseInputs(rows[:0], axes))
    if before is None or before.axes != axes:
        found[name] = None
    else:
        found[name] = DenseInputs(jnp.concatenate([before.inputs, rows]), axes)
