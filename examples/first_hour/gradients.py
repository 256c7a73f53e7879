"""The derivative of a loss on held-out samples by the targets and by the ridge, through the selected coefficients."""

import jax
import jax.numpy as jnp

import jaxht

keys = jax.random.split(jax.random.key(0), 2)
A = jax.random.normal(keys[0], (80, 40))
y = A[:, :4] @ jnp.array([2.0, -1.5, 1.0, -1.0]) + 0.5 * jax.random.normal(keys[1], (80,))
A_valid, y_valid = A[60:], y[60:]


def loss(y, l2):
    result = jaxht.solve(jaxht.LeastSquares(A[:60], y, l2=l2, mean=False), jaxht.Sparse(4), jaxht.HTP())
    return jnp.mean((A_valid @ result.x - y_valid) ** 2)


value, (by_y, by_l2) = jax.value_and_grad(loss, argnums=(0, 1))(y[:60], 2.0)
print(f"loss {value:.4f}, by l2 {by_l2:+.2e}, by the targets of largest influence {jnp.sort(jnp.abs(by_y))[-3:]}")

# Against differences: the support stays, so that the loss is smooth here.
step = 0.1
difference_l2 = (loss(y[:60], 2.0 + step) - loss(y[:60], 2.0 - step)) / (2 * step)
direction = by_y / jnp.linalg.norm(by_y)
difference_y = (loss(y[:60] + step * direction, 2.0) - loss(y[:60] - step * direction, 2.0)) / (2 * step)
print(f"differences: by l2 {difference_l2:+.2e}; along the gradient {difference_y:.4f} of {jnp.linalg.norm(by_y):.4f}")
