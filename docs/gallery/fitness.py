# %% [markdown]
# # A fitness landscape from few of its genotypes
#
# Simulated: ten binary sites on a ring, and interactions within three neighbours alone. Of the 1024 Walsh-Hadamard
# coefficients of the fitness 41 are not 0: effects of sites, of pairs and of triples. They are found from measurements, at
# 20 dB, of a random subset of the genotypes. Nothing is told of the ring or of the order; k and the penalty are chosen on
# a fifth of the subset. From 200 genotypes on OMP leaves a hundredth of the variance (median); from 100 it finds little,
# and the lasso more. Least squares of sites and pairs alone is the best at 100, and misses the triples. The idea is that
# of Aghazadeh et al. 2021 (Epistatic Net) and of Brookes, Aghazadeh & Listgarten 2022.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxht
from jaxht import operators

num_sites, ns = 10, [50, 100, 150, 200, 250, 300]
d, n_max = 2**num_sites, ns[-1]
order = np.array([j.bit_count() for j in range(d)])
pairs = np.flatnonzero(order <= 2)
triples = [1 << i | 1 << (i + 1) % num_sites | 1 << (i + 2) % num_sites for i in range(num_sites)]
interacts = np.array([any(j & ~triple == 0 for triple in triples) for j in range(d)])
print(interacts.sum(), "coefficients; of orders 0 to 3:", np.bincount(order[interacts]))


def recover(n, key):
    keys = jax.random.split(key, 3)
    rows = jax.random.permutation(keys[0], d)
    truth = jnp.where(interacts, jax.random.normal(keys[1], (d,)), 0)
    A, B = (operators.partial_hadamard(d, part) * jnp.sqrt(len(part)) for part in (rows[:n_max], rows[n_max:]))
    y = jaxht.ensembles.noise_at_snr(keys[2], A @ truth, 20.0)
    i = jnp.arange(n_max)
    masks = i < 4 * n // 5, (4 * n // 5 <= i) & (i < n), i < n
    # Weights of 0 leave genotypes out: one compile serves every n.
    train, held_out, both = (jaxht.LeastSquares(A, y, mean=False, weights=1.0 * mask) for mask in masks)
    limit = jaxht.Stop(max_steps=300)
    lasso = jax.vmap(lambda f, l1: jaxht.solve(f, jaxht.Sparse(d), jaxht.baselines.FISTA(l1), stop=limit).x, (None, 0))
    k = jaxht.validate(train, held_out, jaxht.Sparse(), jaxht.OMP(), ks=range(1, 61)).k
    l1s = n * jnp.std(y) * jnp.geomspace(0.3, 0.01, 8)
    best = jnp.argmin(jax.vmap(lambda x: held_out.value(x, held_out.predict(x)))(lasso(train, l1s)))
    few = both.weights[:, None] * (1 - 2 * (jax.lax.population_count(rows[:n_max, None] & pairs) % 2))
    found = {
        "OMP, all orders": jaxht.solve(both, jaxht.Sparse(k, k_max=60), jaxht.OMP()).x,
        "lasso, all orders": lasso(both, l1s[best][None])[0],
        "least squares, orders 0 to 2": jnp.zeros(d).at[pairs].set(jnp.linalg.lstsq(few, y * both.weights)[0]),
    }
    return {name: 1 - jnp.mean((B @ (x - truth)) ** 2) / jnp.var(B @ truth) for name, x in found.items()}


# %%
keys = jax.random.split(jax.random.key(0), 20)
r2 = jax.jit(jax.vmap(jax.vmap(recover, (None, 0)), (0, None)))(jnp.array(ns), keys)
medians = {name: np.median(values, axis=1) for name, values in r2.items()}
figure, axes = plt.subplots(figsize=(5, 3))
print("R^2, medians of 20 landscapes; genotypes measured:", ns)
for name, values in medians.items():
    print(f"{name:29s}", values.round(3))
    axes.plot(ns, values, "o-", label=name)
axes.set(xlabel=f"genotypes measured, of {d}", ylabel="R$^2$ on others", ylim=(-0.2, 1.05))
axes.legend()
