"""A multilayer perceptron with 90, 95 and 98 % of its weights at zero: five ways to get there, five
seeds each.

``python -m examples.mlp`` trains 784-300-100-10 with Adam, pure JAX and optax, and prints a table
of test accuracies. A method is one link at the end of an optax chain. All seeds and sparsities of a
method are one vmap of one jitted
function, the whole training: the fraction of weights that is kept is a traced number. Every method
trains for the same number of epochs; retraining does so after the dense training, and has twice as
many in all.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from chex import ArrayTree, Numeric
from jax import lax

from examples import images
from jaxht import transforms

HIDDEN = (300, 100)
NUM_CLASSES = 10
SPARSITIES = (0.9, 0.95, 0.98)
# the one method that starts from pruned weights, those of the row "dense"
RETRAINED = "one-shot pruning, retrained"

Params: TypeAlias = (
    Any  # a pytree to optax; here a list of layers, each with the arrays "kernel" and "bias"
)
Method: TypeAlias = Callable[
    [Numeric, int], optax.GradientTransformation
]  # from the density and the number of steps


def init(key: jax.Array, num_pixels: int, hidden: Sequence[int] = HIDDEN) -> Params:
    """Draw the parameters: kernels by He's rule, biases zero."""
    sizes = (num_pixels, *hidden, NUM_CLASSES)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"kernel": jax.random.normal(key, (m, n)) * jnp.sqrt(2 / m), "bias": jnp.zeros(n)}
        for key, m, n in zip(keys, sizes, sizes[1:], strict=False)
    ]


def logits(params: Params, x: jax.Array) -> jax.Array:
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    return x @ last["kernel"] + last["bias"]


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


def accuracy(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    return 100 * jnp.mean(logits(params, x).argmax(axis=-1) == y)


def kernels(params: ArrayTree) -> Any:
    """The mask for jaxht: biases are a hundredth of the parameters and stay dense."""
    return jax.tree.map(lambda p: p.ndim > 1, params)


def methods(budget: Callable[[Numeric], Any], scope: str, every: int) -> dict[str, Method]:
    """What stands after Adam in the chain, by its name in the table.

    Args:
        budget: the k of ``hard_threshold`` for the fraction of all weights that is kept.
        scope: that of ``hard_threshold``.
        every: steps from one choice of the support to the next in gradual magnitude pruning.
    """
    threshold = partial(transforms.hard_threshold, scope=scope, mask=kernels)

    def gradual(density: Numeric, steps: int) -> Callable[[Numeric], Any]:
        # A start with all weights to learn which matter; the last 40 % of the steps train the final
        # support.
        schedule = transforms.cubic(density, begin=steps // 10, end=6 * steps // 10)
        return lambda step: budget(schedule(step))

    return {
        RETRAINED: lambda density, steps: threshold(budget(density), freeze_at=0),
        "gradual magnitude pruning": lambda density, steps: threshold(
            gradual(density, steps), every=every, hold=True
        ),
        "hard thresholding": lambda density, steps: threshold(budget(density)),
        "gradual hard thresholding": lambda density, steps: threshold(gradual(density, steps)),
    }


def train(
    params: Params,
    key: jax.Array,
    density: Numeric,
    data: images.Data,
    *,
    method: Method,
    epochs: int,
    batch_size: int,
    learning_rate: float,
) -> tuple[Params, jax.Array]:
    """Train one network, from given parameters.

    Returns:
        The parameters and the test accuracy after each epoch.
    """
    x, y, x_test, y_test = map(jnp.asarray, data)
    steps = len(x) // batch_size
    optimiser = optax.chain(
        optax.adam(optax.cosine_decay_schedule(learning_rate, epochs * steps)),
        method(density, epochs * steps),
    )

    def step(carry, batch):
        params, state = carry
        gradient = jax.grad(loss)(params, x[batch], y[batch])
        updates, state = optimiser.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    def epoch(carry, key):
        order = jax.random.permutation(key, len(x))[: steps * batch_size]
        carry, _ = lax.scan(step, carry, order.reshape(steps, batch_size))
        return carry, accuracy(carry[0], x_test, y_test)

    (params, _), history = lax.scan(
        epoch, (params, optimiser.init(params)), jax.random.split(key, epochs)
    )
    return params, history


class Row(NamedTuple):
    """A row of the table; a lane is a pair of seed and sparsity.

    Attributes:
        sparsities: those of the columns.
        params: parameters of all lanes, (seeds * sparsities, ...).
        accuracy: test accuracy in per cent, (seeds, sparsities).
    """

    sparsities: Sequence[float]
    params: Params
    accuracy: np.ndarray


def run(
    data: images.Data,
    *,
    num_seeds: int = 5,
    sparsities: Sequence[float] = SPARSITIES,
    scope: str = "erdos-renyi",
    every: int = 100,
    hidden: Sequence[int] = HIDDEN,
    **options: Any,
) -> dict[str, Row]:
    """Train every lane by every method.

    Args:
        data: training and test images as ``images.load`` gives them.
        num_seeds: networks for each method and sparsity. A seed is the same initial weights and
            minibatches throughout.
        sparsities: fractions of the kernels' weights to set to zero.
        scope: where the largest weights are sought: "global", in all kernels together; "leaf", in
            each, with the same fraction of each; "erdos-renyi", in each, with more of the small
            ones. Global ranks the initial weights of layers that were drawn on different scales,
            and can lose a layer before it has learnt anything; one fraction for all leaves the last
            layer, a thousand weights, two for each digit at 98 %.
        every: as in ``methods``.
        options: of ``train``.
    """
    data = jax.device_put(data)  # once, not for each method
    seeds = jax.random.split(jax.random.key(0), num_seeds)
    first = jax.vmap(partial(init, num_pixels=data[0].shape[1], hidden=hidden))(seeds)
    rows: dict[str, Row] = {}

    def for_each_sparsity(tree: Any) -> Any:
        return jax.tree.map(lambda a: jnp.repeat(a, len(sparsities), axis=0), tree)

    def fit(
        name: str, method: Method, params: Params, keys: jax.Array, sparsities: Sequence[float]
    ) -> None:
        start = time.perf_counter()
        densities = jnp.tile(1 - jnp.array(sparsities), num_seeds)
        train_all = jax.jit(
            jax.vmap(partial(train, method=method, **options), in_axes=(0, 0, 0, None))
        )
        params, history = train_all(params, keys, densities, data)
        history = np.asarray(history).reshape(num_seeds, len(sparsities), -1)
        rows[name] = Row(sparsities, params, history[..., -1])
        print(f"{name}, {time.perf_counter() - start:.0f} s; test accuracy after each epoch:")
        for sparsity, curve in zip(sparsities, history.mean(axis=0), strict=True):
            print(f"  {sparsity:4.0%}", *(f"{value:.2f}" for value in curve), flush=True)

    fit("dense", lambda density, steps: optax.identity(), first, seeds, [0.0])

    one = jax.tree.map(lambda p: p[0], first)  # the budgets are made of its shapes
    budget = (
        partial(transforms.erdos_renyi_kernel, one)
        if scope == "erdos-renyi"
        else lambda density: density
    )
    scope = "leaf" if scope == "erdos-renyi" else scope

    prune = jax.vmap(
        lambda params, density: transforms.prune(params, budget(density), scope=scope, mask=kernels)
    )
    densities = jnp.tile(1 - jnp.array(sparsities), num_seeds)
    pruned = jax.jit(prune)(for_each_sparsity(rows["dense"].params), densities)
    scores = jax.jit(jax.vmap(accuracy, in_axes=(0, None, None)))(pruned, *data[2:])
    rows["one-shot pruning"] = Row(sparsities, pruned, np.asarray(scores).reshape(num_seeds, -1))

    for name, method in methods(budget, scope, every).items():
        params = pruned if name == RETRAINED else for_each_sparsity(first)
        fit(name, method, params, for_each_sparsity(seeds), sparsities)
    return rows


def table(rows: dict[str, Row], sparsities: Sequence[float]) -> str:
    """The rows in Markdown: mean and standard deviation over the seeds, and the sparsity that came
    out."""
    heads = [
        "test accuracy, %",
        *(f"{sparsity:.0%} zero" for sparsity in sparsities),
        "measured sparsity, %",
    ]
    lines = [heads]
    measure = jax.jit(jax.vmap(partial(transforms.sparsity, mask=kernels)))
    for name, row in rows.items():
        spread = row.accuracy.std(axis=0, ddof=min(1, len(row.accuracy) - 1))
        cells = [
            f"{mean:.2f} ± {std:.2f}"
            for mean, std in zip(row.accuracy.mean(axis=0), spread, strict=True)
        ]
        zeros = np.asarray(measure(row.params).total)
        least = " / ".join(
            f"{100 * zero:.2f}" for zero in zeros.reshape(row.accuracy.shape).min(axis=0)
        )
        lines.append([name, *cells, *[""] * (len(sparsities) - len(cells)), least])
    return images.to_markdown(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = images.arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sparsities", type=float, nargs="+", default=SPARSITIES)
    parser.add_argument("--scope", choices=["erdos-renyi", "global", "leaf"], default="erdos-renyi")
    parser.add_argument(
        "--every", type=int, default=100, help="steps between the prunings of gradual pruning"
    )
    parser.add_argument("--output", type=Path, help="file for the table, in Markdown")
    args = parser.parse_args(arguments)
    *data, name = images.load(args.data_dir)
    start = time.perf_counter()
    rows = run(
        tuple(data),
        num_seeds=args.seeds,
        sparsities=args.sparsities,
        scope=args.scope,
        every=args.every,
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
    )
    text = table(rows, args.sparsities)
    print(f"\n{name}, {args.seeds} seeds, {time.perf_counter() - start:.0f} s\n\n{text}")
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
