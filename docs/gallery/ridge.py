# %% [markdown]
# # A ridge that is learned
#
# The loss on held-out samples is a function of the ridge. The implicit function theorem gives the derivative of the
# solution, and so of this loss, with respect to the ridge; gradient descent chooses the ridge.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

import jaxht

key_A, key_e = jax.random.split(jax.random.key(0))
A = jax.random.normal(key_A, (120, 60)) + 0.8 * jax.random.normal(jax.random.key(1), (120, 1))  # correlated columns
y = A[:, :10] @ jnp.linspace(0.2, 1.0, 10) + 2.0 * jax.random.normal(key_e, (120,))


def loss(log_l2):
    f = jaxht.LeastSquares(A[:60], y[:60], l2=jnp.exp(log_l2))
    x = jaxht.solve(f, jaxht.Sparse(10), jaxht.HTP()).x
    return jnp.mean((A[60:] @ x - y[60:]) ** 2)


# %%
optimiser = optax.adam(0.3)
log_l2, state = jnp.array(-2.0), optimiser.init(jnp.array(0.0))
step = jax.jit(jax.value_and_grad(loss))
walked = []
for _ in range(40):
    value, slope = step(log_l2)
    walked.append((float(log_l2), float(value)))
    update, state = optimiser.update(slope, state)
    log_l2 = log_l2 + update

# %%
grid = jnp.linspace(-3, 8, 100)
figure, axes = plt.subplots(figsize=(5, 3))
axes.plot(grid, jax.vmap(loss)(grid), color="0.7", label="loss on held-out samples; it jumps where the support changes")
axes.plot(*zip(*walked), "o-", markersize=3, label="descent")
axes.set(xlabel="logarithm of the ridge", ylabel="mean squared error")
axes.legend(fontsize=7)
