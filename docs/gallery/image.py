# %% [markdown]
# # An image from half of its numbers
#
# An image of 32 x 32 pixels is sparse in the two-dimensional cosine transform. It is recovered from random combinations
# of its pixels, half as many as there are pixels. The design is an operator; no matrix is stored. The coefficients
# beyond the k largest act as noise, so that k must be well below the number of measurements: with k = 150 the image is
# worse than with k = 80.

# %%
import jax
import jax.numpy as jnp
import jax.scipy.fft
import matplotlib.pyplot as plt
from sklearn.datasets import load_sample_image

import jaxht

china = jnp.asarray(load_sample_image("china.jpg").mean(axis=2)) / 255
image = china[:416, :416].reshape(32, 13, 32, 13).mean(axis=(1, 3))
d, n, k = image.size, image.size // 2, 80
signs = jax.random.rademacher(jax.random.key(0), (d,), float)
rows = jnp.sort(jax.random.permutation(jax.random.key(1), d)[:n])


def pixels(coefficients):
    return jax.scipy.fft.idctn(coefficients.reshape(image.shape), norm="ortho")


def measure(coefficients, signs, rows):  # random signs, a transform, and half of the result
    return jax.scipy.fft.dct(signs * pixels(coefficients).ravel(), norm="ortho")[rows]


# %%
A = jaxht.LinearOperator(measure, (n, d), args=(signs, rows))
y = measure(jax.scipy.fft.dctn(image, norm="ortho").ravel(), signs, rows)
result = jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(k), jaxht.NIHT(), stop=jaxht.Stop(max_steps=500))
recovered = pixels(result.x)
best = pixels(jaxht.projections.hard_threshold(jax.scipy.fft.dctn(image, norm="ortho").ravel(), k))
psnr = [-10 * jnp.log10(jnp.mean((other - image) ** 2)) for other in (recovered, best)]
print(f"{psnr[0]:.1f} dB (peak signal to noise); of the {k} largest coefficients {psnr[1]:.1f} dB")

# %%
figure, panels = plt.subplots(1, 2, figsize=(6, 3))
for axes, shown, title in zip(panels, (image, recovered), ("image", f"from {n} of {d} numbers")):
    axes.imshow(shown, cmap="gray", vmin=0, vmax=1)
    axes.set_title(title)
    axes.set_axis_off()
