# %% [markdown]
# # Directions from signs
#
# Of every measurement only the sign is known, as from a comparator in place of an analogue-to-digital converter. The
# length of the signal is lost; its direction is not. Binary iterative hard thresholding (BIHT) goes on from the
# back-projection, the k largest entries of `A' y`, until the signs agree. A least-squares fit to the signs, as if they
# were what had been measured, has the right direction, too, but for an error.
#
# Where all signs are right, the error of BIHT falls as fast as 1/n, from 0.3 with 64 signs to 0.01 with 1024, and those of
# the other methods as one over the root of n: to 0.05 of least squares and 0.14 of one back-projection. Where one sign in
# twenty is wrong, no direction agrees with all, and BIHT comes no nearer than 0.4; few short steps of it come to 0.07,
# and least squares to 0.09.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxht
from jaxht import ensembles

d, K, n_max, num_trials = 128, 5, 1024, 20
ns = jnp.array([64, 128, 256, 512, n_max])
shares = jnp.array([0.0, 0.05])  # of wrong signs


def errors(share, n, key):
    """Distances of the directions from the true one."""
    matrix_key, signal_key, sign_key = jax.random.split(key, 3)
    A = ensembles.gaussian(matrix_key, n_max, d, variance=1.0)
    truth = ensembles.gaussian_signal(signal_key, d, K)
    is_wrong = jax.random.uniform(sign_key, (n_max,)) < share
    y = jnp.where(is_wrong, -1, 1) * jnp.sign(A @ truth)
    seen = (jnp.arange(n_max) < n).astype(A.dtype)  # weights: one compile serves every n
    f = jaxht.OneBit(A, y, weights=seen)
    squares = jaxht.LeastSquares(A, y, weights=seen)

    def run(objective, solver, max_steps):
        return jaxht.solve(objective, jaxht.Sparse(K), solver, stop=jaxht.Stop(max_steps=max_steps)).x

    found = {
        "one back-projection": jaxht.projections.hard_threshold(A.T @ (seen * y), K),
        "least squares, HTP": run(squares, jaxht.HTP(), 30),
        "BIHT": run(f, jaxht.IHT(step_size=1.0), 100),
        "BIHT, 30 steps of a tenth": run(f, jaxht.IHT(step_size=0.1), 30),
    }
    direction = truth / jnp.linalg.norm(truth)
    return {name: jnp.linalg.norm(x / jnp.linalg.norm(x) - direction) for name, x in found.items()}


# %%
keys = jax.random.split(jax.random.key(0), num_trials)
cells = jnp.stack([jnp.repeat(shares, len(ns)), jnp.tile(ns, len(shares))], axis=1)
run_all = jax.jit(lambda cells: jax.lax.map(lambda cell: jax.vmap(errors, (None, None, 0))(*cell, keys), cells))
medians = {name: jnp.median(e, axis=1).reshape(2, -1) for name, e in run_all(cells).items()}
figure, panels = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
for i, axes in enumerate(panels):
    for name, e in medians.items():
        axes.loglog(ns, e[i], "o-", markersize=3, label=name)
        print(f"{shares[i]:4.0%} wrong, {name:26s}", *(f"{value:6.3f}" for value in e[i]))
    axes.set(title=f"{shares[i]:.0%} of the signs are wrong", xlabel="number of signs", ylabel="error of the direction")
panels[0].legend(fontsize=7)
