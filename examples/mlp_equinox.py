"""The perceptron of ``examples.mlp`` in Equinox, 95 % of its weights at zero: the chain is the
same.

``python -m examples.mlp_equinox``
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from chex import ArrayTree

from examples import images
from jaxht import transforms


def weights(params: ArrayTree) -> Any:
    """The mask for jaxht: matrices are thresholded, biases stay dense."""
    return jax.tree.map(lambda p: p.ndim > 1, params)


def create(num_pixels: int, seed: int = 0) -> eqx.nn.Sequential:
    keys = jax.random.split(jax.random.key(seed), 3)
    return eqx.nn.Sequential(
        [
            eqx.nn.Linear(num_pixels, 300, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(300, 100, key=keys[1]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(100, 10, key=keys[2]),
        ]
    )


def loss_of(model: eqx.nn.Sequential, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), y).mean()


def train(
    data: images.Data, *, sparsity: float = 0.95, epochs: int, batch_size: int, learning_rate: float
) -> tuple[eqx.nn.Sequential, Any]:
    """Train a network by gradual hard thresholding; returns it and the state of the optimiser."""
    x, y, *_ = data
    steps = epochs * (len(x) // batch_size)
    model = create(x.shape[1])
    # From all weights to the fraction that is kept; the last 40 % of the steps train the final
    # support.
    density = transforms.cubic(1 - sparsity, begin=steps // 10, end=6 * steps // 10)
    optimiser = optax.chain(
        optax.adam(optax.cosine_decay_schedule(learning_rate, steps)),
        transforms.hard_threshold(density, scope="global", mask=weights),
    )

    @eqx.filter_jit
    def train_step(model, state, x, y):
        gradient = eqx.filter_grad(loss_of)(model, x, y)
        updates, state = optimiser.update(gradient, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state

    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    for x_batch, y_batch in images.minibatches(x, y, batch_size=batch_size, epochs=epochs):
        model, state = train_step(model, state, x_batch, y_batch)
    return model, state


def accuracy(model: eqx.nn.Sequential, x: np.ndarray, y: np.ndarray) -> float:
    """In per cent."""
    return 100 * float((jax.vmap(model)(jnp.asarray(x)).argmax(axis=-1) == y).mean())


def main() -> None:
    args = images.arguments(__doc__).parse_args()
    *data, _ = images.load(args.data_dir)
    model, _ = train(
        tuple(data),
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
    )
    zeros = transforms.sparsity(eqx.filter(model, eqx.is_inexact_array), mask=weights).total
    print(
        f"Test accuracy {accuracy(model, *data[2:]):.2f} % with {100 * zeros:.2f} % of the weights zero."
    )


if __name__ == "__main__":
    main()
