"""A pipeline with a selection of features in it, searched over their number and what follows."""

import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import jaxht
from jaxht.sklearn import L0Classifier, L0Selector

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = pd.DataFrame(X)
X.loc[::50, "mean radius"] = None  # some are missing
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

steps = {
    "fill": SimpleImputer(),
    "select": L0Selector(L0Classifier(solver=jaxht.OMP())),
    "scale": StandardScaler(),
    "classify": SVC(),
}
pipeline = Pipeline(list(steps.items())).set_output(transform="pandas")
grid = {"select__k": [2, 4, 8], "classify__C": [0.1, 1.0, 10.0]}
search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)

selected = search.best_estimator_[:2].get_feature_names_out().tolist()
score = search.score(X_test, y_test)
print(f"best: {search.best_params_}, {search.best_score_:.3f} in cross-validation, {score:.3f} of new samples")
print(f"features: {selected}")
