# %% [markdown]
# # A phantom from 30 % of its Fourier transform
#
# Magnetic resonance imaging measures the Fourier transform of an image. This phantom of 256 x 256 pixels is constant in
# pieces: 3718 of its 65536 Haar coefficients are not 0. As many numbers as 30 % of the pixels are measured, of random
# frequencies, most of them low, or on 77 lines through the centre, which a scanner follows more easily. Hard thresholding
# and the lasso recover it by the same wavelets, with 300 products each.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxht
from jaxht import operators

m, k, num_lines = 256, 4000, 77
# Ellipses of Shepp and Logan with Toft's intensities: intensity, half axes, centre, angle in degrees.
ellipses = jnp.array([
    [1.0, 0.69, 0.92, 0, 0, 0], [-0.8, 0.6624, 0.874, 0, -0.0184, 0], [-0.2, 0.11, 0.31, 0.22, 0, -18],
    [-0.2, 0.16, 0.41, -0.22, 0, 18], [0.1, 0.21, 0.25, 0, 0.35, 0], [0.1, 0.046, 0.046, 0, 0.1, 0],
    [0.1, 0.046, 0.046, 0, -0.1, 0], [0.1, 0.046, 0.023, -0.08, -0.605, 0], [0.1, 0.023, 0.023, 0, -0.606, 0],
    [0.1, 0.023, 0.046, 0.06, -0.605, 0],
])  # fmt: skip
value, a, b, x0, y0, degrees = ellipses.T[:, :, None, None]
centres = (jnp.arange(m) + 0.5) / (m / 2) - 1
turn = jnp.exp(-1j * jnp.deg2rad(degrees)) * (centres - x0 - 1j * (centres[:, None] + y0))
image = jnp.sum(value * ((turn.real / a) ** 2 + (turn.imag / b) ** 2 <= 1), axis=0)

# %%
grid = 2 * jnp.pi * jnp.stack(jnp.meshgrid(*[jnp.fft.fftfreq(m)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
density = 1 / jnp.maximum(jnp.sum(grid**2, axis=1), (2 * jnp.pi / m) ** 2)
rows = jax.random.choice(jax.random.key(0), m * m, (3 * m * m // 10,), replace=False, p=density)
angles = jnp.pi * jnp.arange(num_lines)[:, None] / num_lines
lines = jnp.pi * jnp.stack([centres * jnp.cos(angles), centres * jnp.sin(angles)], axis=-1).reshape(-1, 2)
radii = jnp.linalg.norm(lines, axis=1)
F = {"random": operators.partial_dft((m, m), rows), "radial": operators.nonuniform_dft((m, m), lines)}
weights = {"random": jnp.ones(len(rows)), "radial": radii / jnp.mean(radii)}  # lines are dense at the centre
l1 = {"random": 0.001, "radial": 0.01}  # the best of 0.01, 0.003 and 0.001
W = operators.wavelet((m, m), "haar", levels=5, dtype=complex)
three, two = jaxht.Stop(max_steps=100), jaxht.Stop(max_steps=150)  # by the products in a step
psnr = {}
figure, panels = plt.subplots(2, 4, figsize=(9, 5), layout="constrained")
for (sampling, A), (points, *pictures) in zip(F.items(), panels):
    measured = A @ image.ravel().astype(complex)
    f = jaxht.LeastSquares(A @ W, measured, mean=False, weights=weights[sampling])
    adjoint = A.H @ (weights[sampling] * measured)
    found = {
        "adjoint": adjoint / jnp.max(jnp.abs(adjoint)),
        "lasso": W @ jaxht.solve(f, jaxht.Sparse(m * m), jaxht.baselines.FISTA(l1[sampling]), stop=two).x,
        "CGIHT": W @ jaxht.solve(f, jaxht.Sparse(k), jaxht.CGIHT(), stop=three).x,
    }
    points.plot(*{"random": grid[rows], "radial": lines}[sampling].T, ".", markersize=0.2)
    points.set(title=f"{sampling} frequencies", xticks=[], yticks=[], aspect="equal")
    for picture, (name, z) in zip(pictures, found.items()):
        z = z.real.reshape(m, m)
        psnr[sampling, name] = float(-10 * jnp.log10(jnp.mean((z - image) ** 2)))
        picture.imshow(z, cmap="gray", vmin=0, vmax=1)
        picture.set(title=f"{name}: {psnr[sampling, name]:.0f} dB", xticks=[], yticks=[])

# %% [markdown]
# The image is exactly sparse, and thresholding has no bias where k is at least the number of nonzeros: 134 dB from random
# frequencies, against 72 of the lasso. Columns of lines are far from orthogonal, and after 300 products both are on their
# way: 59 dB against 50; 25 without weights. With noise of deviation 0.02 in the parts of the random ones it is 41 against
# 39, and with "db4", 37 each. From 12 % of them 300 steps come to 29 dB, under `TreeSparse` of `wavelet_parents` to 58.
