"""Several targets that depend on the same few features: a matrix of coefficients with few nonzero rows."""

import numpy as np

import jaxht
from jaxht.sklearn import L0MultiTaskRegressor, L0Regressor

rng = np.random.default_rng(0)
d, num_targets, features = 300, 12, [20, 80, 140, 200, 260]
X = rng.standard_normal((100, d))
truth = np.zeros((num_targets, d))
truth[:, features] = rng.standard_normal((num_targets, 5))  # of each target some of these are small
Y = X @ truth.T + 3 + 1.5 * rng.standard_normal((100, num_targets))

model = L0MultiTaskRegressor().fit(X, Y)  # k by EBIC; all targets select together
alone = [L0Regressor(k=model.k_, solver=jaxht.OMP()).fit(X, target) for target in Y.T]
selected = np.flatnonzero(model.support_)
misses = [len(set(features) - set(np.flatnonzero(one.support_))) for one in alone]

X_new = rng.standard_normal((1000, d))
errors = [
    np.sqrt(np.mean((predicted - X_new @ truth.T - 3) ** 2))
    for predicted in (model.predict(X_new), np.stack([one.predict(X_new) for one in alone], axis=1))
]
print(f"features {selected}, for all {num_targets} targets; coefficients {model.coef_.shape}")
print(f"each target alone misses {np.mean(misses):.1f} of the five")
print(f"error of the means of new samples: {errors[0]:.2f}, each target alone {errors[1]:.2f}")
