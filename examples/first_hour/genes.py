"""Ten genes of two thousand that predict a response: how many by cross-validation, with intercept and refit."""

import numpy as np

from jaxht.sklearn import L0Regressor

rng = np.random.default_rng(0)
pathways = rng.standard_normal((220, 400)).repeat(5, axis=1)  # genes come in fives that move together
X = rng.uniform(2, 12, 2000) + rng.lognormal(0, 1, 2000) * (0.7 * pathways + 0.7 * rng.standard_normal((220, 2000)))
truth = np.arange(0, 2000, 200)
response = 3.0 + (X[:, truth] / X[:, truth].std(axis=0)) @ np.array([3, -2, 2, 2, -2, 1.5, 2, -1.5, 3, -2])
y = response + rng.standard_normal(220)
train, test = slice(0, 150), slice(150, 220)

# The columns have units of their own: the estimator standardises, and its intercept does not count.
choice = L0Regressor(k="cv", cv=5, k_max=15).fit(X[train], y[train])
losses = choice.path_.fold_losses
limit = losses.mean(axis=0).min() + losses[:, losses.mean(axis=0).argmin()].std(ddof=1) / np.sqrt(len(losses))
k = int(choice.path_.k[np.argmax(losses.mean(axis=0) <= limit)])  # the one-standard-error rule
model = L0Regressor(k=k).fit(X[train], y[train])  # least squares on these genes: nothing is shrunk

genes, score = np.flatnonzero(model.support_), model.score(X[test], y[test])
print(f"least loss at {choice.k_} genes, within a standard error of it at {k}: {genes}")
print(f"coefficients {model.coef_[genes].round(2)}, intercept {model.intercept_:.2f}")
print(f"R^2 of {len(y[test])} new samples: {score:.3f}; their first predictions: {model.predict(X[test])[:3].round(2)}")
