"""The perceptron of ``examples.mlp`` in Flax NNX, 95 % of its weights at zero: the chain is the
same.

``python -m examples.mlp_nnx``
"""

from typing import Any

import numpy as np
import optax
from chex import Array
from flax import nnx

from examples import images
from jaxht import transforms


def kernels(params: nnx.State) -> Any:
    """The mask for jaxht: Flax names parameters, and biases are to stay dense."""
    return nnx.map_state(lambda path, _: path[-1] == "kernel", params)


def create(num_pixels: int, seed: int = 0) -> nnx.Sequential:
    rngs = nnx.Rngs(seed)
    return nnx.Sequential(
        nnx.Linear(num_pixels, 300, rngs=rngs),
        nnx.relu,
        nnx.Linear(300, 100, rngs=rngs),
        nnx.relu,
        nnx.Linear(100, 10, rngs=rngs),
    )


@nnx.jit
def train_step(model: nnx.Sequential, optimiser: nnx.Optimizer, x: Array, y: Array) -> Array:
    def loss_of(model: nnx.Sequential) -> Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, gradient = nnx.value_and_grad(loss_of)(model)
    optimiser.update(model, gradient)
    return loss


def train(
    data: images.Data, *, sparsity: float = 0.95, epochs: int, batch_size: int, learning_rate: float
) -> tuple[nnx.Sequential, nnx.Optimizer]:
    """Train a network by gradual hard thresholding."""
    x, y, *_ = data
    steps = epochs * (len(x) // batch_size)
    model = create(x.shape[1])
    # From all weights to the fraction that is kept; the last 40 % of the steps train the final
    # support.
    density = transforms.cubic(1 - sparsity, begin=steps // 10, end=6 * steps // 10)
    chain = optax.chain(
        optax.adam(optax.cosine_decay_schedule(learning_rate, steps)),
        transforms.hard_threshold(density, scope="global", mask=kernels),
    )
    optimiser = nnx.Optimizer(model, chain, wrt=nnx.Param)
    for x_batch, y_batch in images.minibatches(x, y, batch_size=batch_size, epochs=epochs):
        train_step(model, optimiser, x_batch, y_batch)
    return model, optimiser


def accuracy(model: nnx.Sequential, x: np.ndarray, y: np.ndarray) -> float:
    """In per cent."""
    return 100 * float((model(x).argmax(axis=-1) == y).mean())


def main() -> None:
    args = images.arguments(__doc__).parse_args()
    *data, _ = images.load(args.data_dir)
    model, _ = train(
        tuple(data),
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
    )
    zeros = transforms.sparsity(nnx.state(model, nnx.Param), mask=kernels).total
    print(
        f"Test accuracy {accuracy(model, *data[2:]):.2f} % with {100 * zeros:.2f} % of the kernels' entries zero."
    )


if __name__ == "__main__":
    main()
