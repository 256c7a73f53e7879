# %% [markdown]
# # Directions of arrival
#
# A line of 20 antennas, half a wavelength apart, receives four signals; the third is an echo of the second. Every
# snapshot is a complex combination of the same four columns of the steering matrix: the matrix of all snapshots has one
# nonzero row for each direction ("multiple measurement vectors", joint sparsity). Simultaneous orthogonal matching
# pursuit (SOMP) is `OMP` under `Groups(k)`. MUSIC needs signals that are not coherent, and misses the echo.

# %%
import matplotlib.pyplot as plt
import numpy as np

import jaxht

num_antennas, num_snapshots = 20, 50
rng = np.random.default_rng(0)
grid = np.arange(-90, 90.5, 0.5)
truth = np.array([-22.3, 8.0, 14.5, 41.2])  # degrees; not all are on the grid


def steering(angles):
    positions = np.arange(num_antennas) / 2  # in wavelengths
    phases = np.outer(positions, np.sin(np.radians(angles)))
    return (np.exp(2j * np.pi * phases) / np.sqrt(num_antennas)).astype(np.complex64)


def draw(*shape):
    real, imag = rng.standard_normal((2, *shape))
    return (real + 1j * imag) / np.sqrt(2)


signals = draw(4, num_snapshots)
signals[2] = np.exp(1j) * signals[1]
Y = steering(truth) @ signals + 0.15 * draw(num_antennas, num_snapshots)

# %%
A = steering(grid)
result = jaxht.solve(jaxht.MultiResponse(A, Y), jaxht.Groups(4), jaxht.OMP())
power = np.mean(np.abs(result.x) ** 2, axis=1)
found = np.flatnonzero(power)
print("degrees:", grid[found])

# %%
covariance = Y @ Y.conj().T / num_snapshots
beam = np.linalg.norm(A.conj().T @ Y, axis=1) ** 2 / num_snapshots
noise_space = np.linalg.eigh(covariance)[1][:, :-4]
music = 1 / np.linalg.norm(A.conj().T @ noise_space, axis=1) ** 2
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(grid, 10 * np.log10(beam / beam.max()), color="0.6", label="beamformer")
axes.plot(grid, 10 * np.log10(music / music.max()), "--", color="C1", label="MUSIC")
axes.plot(grid[found], 10 * np.log10(power[found] / power.max()), "o", label="SOMP")
axes.vlines(truth, -25, 3, color="black", linestyle=":", linewidth=1, label="true directions")
axes.set(xlabel="angle in degrees", ylabel="power in dB", ylim=(-25, 3))
axes.legend(fontsize=7)
