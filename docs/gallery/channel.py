# %% [markdown]
# # A channel of few taps from known symbols
#
# A radio channel delays and weights a signal along few paths: of the 128 complex taps of its impulse response 8 are not
# 0. The receiver knows the symbols that were sent, and the samples that it receives are their convolution with the taps,
# and noise. From 160 samples least squares can find all taps; 64 are fewer than there are taps. At 20 dB HTP, which is
# given the number of taps, comes within half a decibel of least squares on the true ones, from either number of samples.
# OMP, which is given the level of the noise and stops there, loses 2 to 4 dB, and the best of three penalties 5 to 7. At
# 0 dB the lasso is better than OMP, and with 64 samples than HTP too.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxht
from jaxht import ensembles

d, K, ns = 128, 8, jnp.array([160, 64])
snrs = jnp.arange(0.0, 31.0, 5.0)  # in dB
symbols = jax.random.choice(jax.random.key(0), jnp.array([1, 1j, -1, -1j]), (ns[0] + d - 1,))
A = jax.scipy.linalg.toeplitz(symbols[d - 1 :], symbols[d - 1 :: -1])


def errors(n, snr, key):
    seen = jnp.arange(len(A)) < n  # rows of zeros change no solution: one compile serves every n
    truth = ensembles.gaussian_signal(jax.random.fold_in(key, 0), d, K, dtype=complex)
    sigma = ensembles.sigma_for_snr(A @ truth, 10 ** (snr / 10))
    B = A * seen[:, None]
    y = ensembles.noise_at_snr(jax.random.fold_in(key, 1), A @ truth, snr) * seen
    f = jaxht.LeastSquares(B, y, mean=False)
    (taps,) = jnp.nonzero(truth, size=K)
    l1s = jnp.array([0.3, 0.4, 0.6]) * sigma * jnp.sqrt(n * jnp.log(d))
    close = jaxht.Stop(gap_rtol=1e-3)
    noise = jaxht.Stop(target_value=ensembles.noise_target(n, sigma))
    found = {
        "least squares, all taps": jnp.linalg.pinv(B) @ y,
        "lasso": jax.vmap(lambda l1: jaxht.solve(f, jaxht.Sparse(d), jaxht.baselines.FISTA(l1), stop=close).x)(l1s),
        "OMP, to the noise": jaxht.solve(f, jaxht.Sparse(32), jaxht.OMP(), stop=noise).x,
        "HTP, k = 8": jaxht.solve(f, jaxht.Sparse(K), jaxht.HTP()).x,
        "least squares, true taps": jnp.zeros(d, complex).at[taps].set(jnp.linalg.pinv(B[:, taps]) @ y),
    }
    return {name: jnp.sum(abs(x - truth) ** 2, axis=-1) / jnp.sum(abs(truth) ** 2) for name, x in found.items()}


# %%
keys = jax.random.split(jax.random.key(1), 50)
by_snr = jax.vmap(jax.vmap(errors, (None, None, 0)), (None, 0, None))
found = jax.jit(lambda ns: jax.lax.map(lambda n: by_snr(n, snrs, keys), ns))(ns)
decibels = {name: 10 * jnp.log10(jnp.mean(e, axis=2)) for name, e in found.items()}
decibels["lasso"] = jnp.min(decibels["lasso"], axis=-1)  # the best of three penalties
figure, panels = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
for i, axes in enumerate(panels):
    for name, e in decibels.items():
        axes.plot(snrs, e[i], ":k" if "true" in name else "o-", markersize=3, label=name)
        print(f"{ns[i]} samples, {name:25s}{e[i, 0]:6.1f} dB at 0 dB,{e[i, 4]:6.1f} dB at 20")
    axes.set(title=f"{ns[i]} samples", xlabel="signal to noise, dB", ylabel="square error, dB")
panels[0].legend(fontsize=7)
