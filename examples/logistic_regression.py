"""Sparse logistic regression in an optax loop, and the same by ``jaxht.IHT``: step for step the
same iterates.

``python -m examples.logistic_regression``
"""

import jax
import jax.numpy as jnp
import optax
from jax import lax

import jaxht
from jaxht import ensembles
from jaxht.transforms import hard_threshold


def problem(n: int = 400, d: int = 1000, k: int = 20) -> tuple[jax.Array, jax.Array]:
    """Gaussian features, and labels drawn from a k-sparse classifier."""
    design_key, signal_key, label_key = jax.random.split(jax.random.key(0), 3)
    A = jax.random.normal(design_key, (n, d))
    margins = A @ (3 * ensembles.gaussian_signal(signal_key, d=d, K=k))
    y = jnp.where(jax.random.bernoulli(label_key, jax.nn.sigmoid(margins)), 1.0, -1.0)
    return A, y


def train(
    A: jax.Array, y: jax.Array, *, k: int, l2: float, step_size: jax.Array, num_steps: int
) -> jax.Array:
    """The iterates of gradient descent in optax, hard-thresholded in every step: (num_steps, d)."""

    def loss(x: jax.Array) -> jax.Array:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(A @ x, (y + 1) / 2)) + l2 / 2 * jnp.vdot(
            x, x
        )

    optimiser = optax.chain(optax.sgd(step_size), hard_threshold(k))

    def step(carry: tuple, _: None) -> tuple:
        x, state = carry
        updates, state = optimiser.update(jax.grad(loss)(x), state, x)
        x = optax.apply_updates(x, updates)
        return (x, state), x

    x = jnp.zeros(A.shape[1])
    return lax.scan(step, (x, optimiser.init(x)), length=num_steps)[1]


def main(num_steps: int = 300, k: int = 20, l2: float = 1e-3) -> float:
    """Print both objectives and the largest difference of any entry of any iterate, relative to the
    largest entry."""
    A, y = problem(k=k)
    objective = jaxht.Logistic(A, y, l2)
    step_size = 1 / objective.majorant().norm()
    result, history = jaxht.trace(
        objective,
        jaxht.Sparse(k),
        jaxht.IHT(step_size=step_size),
        num_steps=num_steps,
        record=lambda carry: carry.iterate.x,
    )
    xs = train(A, y, k=k, l2=l2, step_size=step_size, num_steps=num_steps)
    difference = float(jnp.max(jnp.abs(xs - history[1:])) / jnp.max(jnp.abs(xs)))
    value = objective.value(xs[-1], objective.predict(xs[-1]))
    print(f"objective after {num_steps} steps: optax {value:.6f}, jaxht.IHT {result.value:.6f}")
    print(
        f"nonzeros: {int(jnp.sum(xs[-1] != 0))} of {xs.shape[1]}; training accuracy: {accuracy(A, y, xs[-1]):.1%}"
    )
    print(f"largest difference of any iterate: {difference:.1e}")
    return difference


def accuracy(A: jax.Array, y: jax.Array, x: jax.Array) -> float:
    """The fraction of labels that x predicts."""
    return float(jnp.mean(jnp.sign(A @ x) == y))


if __name__ == "__main__":
    main()
