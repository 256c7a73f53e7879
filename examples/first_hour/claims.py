"""Poisson regression of counts with an exposure: claims of policies that were insured for different times."""

import numpy as np

from jaxht.sklearn import L0PoissonRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((3000, 30))
years = rng.uniform(0.1, 5, 3000)
rate = np.exp(-1.5 + X[:, [2, 11, 23]] @ np.array([0.5, -0.4, 0.3]))  # claims a year
claims = rng.poisson(years * rate)
train, test = slice(0, 2000), slice(2000, 3000)

model = L0PoissonRegressor(k=3).fit(X[train], claims[train], offset=np.log(years[train]))
features = np.flatnonzero(model.support_)
expected = model.predict(X[test], offset=np.log(years[test]))
a_year = model.predict(X[test])  # an offset of 0: one year
score = model.score(X[test], claims[test], offset=np.log(years[test]))

print(f"features {features}, coefficients {model.coef_[features].round(2)}, intercept {model.intercept_:.2f}")
print(f"claims of new policies: {claims[test].sum()}, expected {expected.sum():.0f}; a year {a_year.mean():.3f} each")
print(f"share of the deviance that is explained, beyond that of the mean: {score:.3f}")
