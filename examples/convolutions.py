"""A network of convolutions, trained in a minute and pruned without further training.

``python -m examples.convolutions`` trains two convolutions and a dense layer with Adam, prunes them
one after the other by five methods, each layer to the same share of zeros, and prints a table: the
test accuracy, and the relative error of the outputs of each layer. The first images calibrate;
their labels are not used.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from examples import images
from jaxht import pruning

NUM_CLASSES = 10
CHANNELS = (16, 32)
WINDOW = 5
SPARSITIES = (0.5, 0.7, 0.8, 0.9, 0.95)
NUM_CALIBRATION = 2000
METHODS: dict[str, Any] = {
    "magnitude": pruning.Magnitude(),
    "Wanda": pruning.Wanda(),
    "SparseGPT": pruning.SparseGPT(),
    "ALPS": pruning.ALPS(),
    "exchanges": pruning.Exchanges(),
}

Params: TypeAlias = Any  # kernels and the biases of the last layer, by name


def init(key: jax.Array, num_pixels: int) -> Params:
    """Draw the parameters by He's rule."""
    first, second = CHANNELS
    num_features = (num_side(num_pixels) // 4) ** 2 * second
    shapes = {
        "first": (WINDOW, WINDOW, 1, first),
        "second": (WINDOW, WINDOW, first, second),
        "out": (num_features, NUM_CLASSES),
    }
    keys = jax.random.split(key, len(shapes))
    params: dict[str, Any] = {
        name: jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return params | {"bias": jnp.zeros(NUM_CLASSES)}


def num_side(num_pixels: int) -> int:
    return round(num_pixels**0.5)


def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A convolution, a ramp, and the largest of each 2 x 2 values."""
    layout = ("NHWC", "HWIO", "NHWC")
    x = jax.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout))
    square = (1, 2, 2, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, square, square, "VALID")


def logits(params: Params, x: jax.Array) -> jax.Array:
    """Of images that are rows."""
    side = num_side(x.shape[1])
    x = x.reshape(-1, side, side, 1)
    x = convolve(x, params["first"])
    x = convolve(x, params["second"])
    return x.reshape(len(x), -1) @ params["out"] + params["bias"]


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


@jax.jit
def num_right(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum(jnp.argmax(logits(params, x), axis=1) == y)


def accuracy(params: Params, x: np.ndarray, y: np.ndarray, batch_size: int = 1000) -> float:
    """In per cent, batch by batch."""
    starts = range(0, len(x), batch_size)
    right = [num_right(params, x[i : i + batch_size], y[i : i + batch_size]) for i in starts]
    return 100 * float(sum(right)) / len(x)


def train(
    params: Params,
    x: np.ndarray,
    y: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
) -> Params:
    """Adam, with a learning rate that falls as a cosine."""
    num_steps = epochs * (len(x) // batch_size)
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
    state = optimiser.init(params)

    @jax.jit
    def step(params: Params, state: Any, x: jax.Array, y: jax.Array) -> Any:
        updates, state = optimiser.update(jax.grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    for batch in images.minibatches(x, y, batch_size=batch_size, epochs=epochs):
        params, state = step(params, state, *batch)
    return params


class Row(NamedTuple):
    """A method at a share of zeros.

    Attributes:
        params: the pruned parameters.
        errors: of the outputs of each layer, by its name, relative, squared.
        seconds: for all layers, the inputs of each computed anew.
    """

    params: Params
    errors: dict[str, float]
    seconds: float


def prune(params: Params, x: np.ndarray, sparsity: float, name: str) -> Row:
    """Prune the three layers, the inputs of each those of the pruned ones before it."""
    begin = time.perf_counter()
    size = max(1, len(x) // 4)
    batches = [jnp.asarray(x[i : i + size]) for i in range(0, len(x), size)]
    pruned = pruning.prune_model(logits, params, batches, 1 - sparsity, method=METHODS[name])
    errors = {layer.name[2:-2]: layer.error for layer in pruned.layers}
    return Row(pruned.params, errors, time.perf_counter() - begin)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = images.arguments(__doc__)
    parser.set_defaults(epochs=3, learning_rate=2e-3)
    parser.add_argument("--sparsities", type=float, nargs="+", default=SPARSITIES)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--output", type=Path, help="file for the table, in Markdown")
    args = parser.parse_args(arguments)
    x, y, x_test, y_test, name = images.load(args.data_dir)
    begin = time.perf_counter()
    params = train(
        init(jax.random.key(0), x.shape[1]),
        x,
        y,
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
    )
    seconds = time.perf_counter() - begin
    print(f"{name}: dense {accuracy(params, x_test, y_test):.2f} %, trained in {seconds:.0f} s")

    lines = [["zeros", "method", "test accuracy, %", "first", "second", "out", "s"]]
    for sparsity in args.sparsities:
        for method in args.methods:
            row = prune(params, x[:NUM_CALIBRATION], sparsity, method)
            errors = [f"{error:.1e}" for error in row.errors.values()]
            right = f"{accuracy(row.params, x_test, y_test):.2f}"
            lines.append([f"{sparsity:.0%}", method, right, *errors, f"{row.seconds:.1f}"])
            print(*lines[-1], flush=True)
    text = images.to_markdown(lines)
    print(f"\n{text}")
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
