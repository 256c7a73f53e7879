"""Sparse logistic regression: rare positives in a sparse matrix, with class weights and probabilities."""

import numpy as np
import scipy.sparse
from sklearn.metrics import balanced_accuracy_score

from jaxht.sklearn import L0Classifier

rng = np.random.default_rng(0)
words = scipy.sparse.csr_matrix(rng.random((6000, 1500)) < 0.03, dtype=np.float32)  # which words occur in a document
truth = np.arange(0, 1500, 150)
u = words[:, truth] @ np.array([4, 3, 3, -3, 4, 3, -3, 3, 4, 3]) - 4
spam = rng.random(6000) < 1 / (1 + np.exp(-u))
train, test = slice(0, 4000), slice(4000, 6000)

plain = L0Classifier(k=8).fit(words[train], spam[train])
balanced = L0Classifier(k=8, class_weight="balanced").fit(words[train], spam[train])
found = np.flatnonzero(balanced.support_)
print(f"{spam.mean():.1%} are spam; words that tell: {found}, all of them true: {np.isin(found, truth).all()}")

# With class weights the probabilities are those of classes of equal size. The log odds of the classes, as an offset,
# turn them into those of the data.
share = spam[train].mean()
odds = np.full(2000, np.log(share / (1 - share)))
probabilities = {
    "plain": plain.predict_proba(words[test])[:, 1],
    "balanced": balanced.predict_proba(words[test])[:, 1],
    "balanced, with offset": balanced.predict_proba(words[test], offset=odds)[:, 1],
}
for name, p in probabilities.items():
    score = balanced_accuracy_score(spam[test], p > 0.5)
    print(f"{name:22s} mean probability {p.mean():.3f} of {spam[test].mean():.3f}, balanced accuracy {score:.3f}")
