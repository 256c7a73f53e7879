# %% [markdown]
# # The equations behind a trajectory
#
# Sparse identification of nonlinear dynamics: the positions of a Lorenz system are measured with noise. Their time
# derivatives are linear combinations of a few monomials of the positions. Which monomials are these?
# `examples/sindy.py` also chooses the number of terms.

# %%
import matplotlib.pyplot as plt
import numpy as np
import scipy.integrate
import scipy.signal

import jaxht


def lorenz(t, x):
    return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]


times = np.linspace(0, 20, 4000)
path = scipy.integrate.solve_ivp(lorenz, (0, 20), [1, 1, 1], t_eval=times, rtol=1e-9, atol=1e-9).y.T
noisy = path + 0.002 * path.std(axis=0) * np.random.default_rng(0).standard_normal(path.shape)
smooth = {"window_length": 25, "polyorder": 5, "axis": 0, "delta": times[1]}
x, velocity = (scipy.signal.savgol_filter(noisy, deriv=deriv, **smooth)[25:-25] for deriv in (0, 1))

# %% [markdown]
# The twenty monomials up to the third degree are strongly correlated along the trajectory. The search for the best
# support finds the two or three terms of each equation.

# %%
powers = np.array([p for p in np.ndindex(4, 4, 4) if sum(p) <= 3])
names = np.array([" ".join(f"{v}^{e}" if e > 1 else v for v, e in zip("xyz", p) if e) or "1" for p in powers])
A = np.stack([np.prod(x**p, axis=1) for p in powers], axis=1)
scale = np.linalg.norm(A, axis=0)
for name, target, k in zip("xyz", velocity.T, (2, 3, 2)):
    result = jaxht.solve(jaxht.LeastSquares((A / scale).astype(np.float32), target.astype(np.float32)), jaxht.Sparse(k))
    terms = " ".join(
        f"{c:+.2f} {term}" for c, term in zip((result.x / scale)[result.support.mask], names[result.support.numpy()])
    )
    print(f"d{name}/dt = {terms}")

# %%
figure = plt.figure(figsize=(5, 4))
axes = figure.add_subplot(projection="3d")
axes.plot(*noisy.T, linewidth=0.4)
