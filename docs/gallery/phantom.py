# %% [markdown]
# # A phantom from a third of its Fourier coefficients
#
# Magnetic resonance imaging measures coefficients of the Fourier transform of an image. This phantom of 256 x 256 pixels
# is constant in pieces: 3718 of its 65536 Haar coefficients are not 0. It is recovered from 30 % of its Fourier
# coefficients, most of them of low frequency, by hard thresholding and by the lasso, with 300 products each.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxht
from jaxht import operators

m, k = 256, 4000
# Ellipses of Shepp and Logan with Toft's intensities: intensity, half axes, centre, angle in degrees.
ellipses = jnp.array([
    [1.0, 0.69, 0.92, 0, 0, 0], [-0.8, 0.6624, 0.874, 0, -0.0184, 0],
    [-0.2, 0.11, 0.31, 0.22, 0, -18], [-0.2, 0.16, 0.41, -0.22, 0, 18],
    [0.1, 0.21, 0.25, 0, 0.35, 0], [0.1, 0.046, 0.046, 0, 0.1, 0],
    [0.1, 0.046, 0.046, 0, -0.1, 0], [0.1, 0.046, 0.023, -0.08, -0.605, 0],
    [0.1, 0.023, 0.023, 0, -0.606, 0], [0.1, 0.023, 0.046, 0.06, -0.605, 0],
])  # fmt: skip
value, a, b, x0, y0, degrees = ellipses.T[:, :, None, None]
x, y = jnp.meshgrid((jnp.arange(m) + 0.5) / (m / 2) - 1, 1 - (jnp.arange(m) + 0.5) / (m / 2))
turn = jnp.exp(-1j * jnp.deg2rad(degrees)) * (x - x0 + 1j * (y - y0))
image = jnp.sum(value * ((turn.real / a) ** 2 + (turn.imag / b) ** 2 <= 1), axis=0)

# %%
frequency = jnp.fft.fftfreq(m) * m
density = 1 / jnp.maximum(frequency[:, None] ** 2 + frequency**2, 1).ravel()
rows = jax.random.choice(jax.random.key(0), m * m, (3 * m * m // 10,), replace=False, p=density)
F = operators.partial_dft((m, m), rows)
W = operators.wavelet((m, m), "haar", levels=5, dtype=complex)
measured = F @ image.ravel().astype(complex)
f = jaxht.LeastSquares(F @ W, measured, mean=False)

found = {"zeros elsewhere": F.H @ measured * (rows.size / m**2)}
stop = jaxht.Stop(max_steps=100)  # of three products each
found["CGIHT"] = W @ jaxht.solve(f, jaxht.Sparse(k), jaxht.CGIHT(), stop=stop).x
stop = jaxht.Stop(max_steps=150)  # of two
for l1 in (0.003, 0.001, 0.0003):
    lasso = jaxht.baselines.FISTA(l1)
    found[f"lasso, {l1}"] = W @ jaxht.solve(f, jaxht.Sparse(m * m), lasso, stop=stop).x
images = {name: z.real.reshape(m, m) for name, z in found.items()}
psnr = {name: float(-10 * jnp.log10(jnp.mean((z - image) ** 2))) for name, z in images.items()}
for name in found:
    print(f"{name}: {psnr[name]:.1f} dB (peak signal to noise)")

# %% [markdown]
# The image is exactly sparse, and thresholding has no bias where k is at least the number of nonzeros: 134 dB, against 72
# dB of the best penalty; with k = 3000 it comes to 43. With noise of standard deviation 0.02 in the real and the imaginary
# parts it is 41 dB against 39, and with the wavelets "db4", in which five times as many coefficients are not 0, both come to 37,
# at k = 7000. With 12 % of the coefficients 300 steps come to 29 dB, and under `TreeSparse` of `wavelet_parents` to 58.

# %%
best = max((name for name in images if "lasso" in name), key=psnr.get)
figure, panels = plt.subplots(2, 3, figsize=(7, 5))
for (over, under), name in zip(panels.T, ("zeros elsewhere", best, "CGIHT")):
    over.imshow(images[name], cmap="gray", vmin=0, vmax=1)
    under.imshow(abs(images[name] - image), cmap="gray", vmin=0, vmax=0.02)
    over.set_title(f"{name}: {psnr[name]:.0f} dB", fontsize=8)
    over.set_axis_off()
    under.set_axis_off()
