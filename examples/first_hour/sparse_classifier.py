"""A network with 5 % of its weights, trained, saved as sparse matrices, and restored."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from jaxht import transforms

X, y = load_digits(return_X_y=True)
split = train_test_split(X.astype("float32") / 16, y.astype("int32"), random_state=0)
X_train, X_test, y_train, y_test = map(jnp.asarray, split)
schedule = transforms.cubic(0.05, begin=0, end=400)  # from dense to 5 %
optimiser = optax.chain(optax.adam(1e-2), transforms.hard_threshold(schedule, scope="global"))


def logits(params, x):
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


@jax.jit
def step(params, state):
    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, X_train), y_train).mean()

    updates, state = optimiser.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state


keys = jax.random.split(jax.random.key(0))
params = {"hidden": jax.random.normal(keys[0], (64, 128)) / 8, "out": jax.random.normal(keys[1], (128, 10)) / 11}
state = optimiser.init(params)
for _ in range(800):
    params, state = step(params, state)
predictions = logits(params, X_test)
sparsity, accuracy = float(transforms.sparsity(params).total), float((predictions.argmax(axis=1) == y_test).mean())

with tempfile.TemporaryDirectory() as folder:
    for name, weights in params.items():
        scipy.sparse.save_npz(Path(folder, name), scipy.sparse.csr_matrix(np.asarray(weights)))
    restored = {name: jnp.asarray(scipy.sparse.load_npz(Path(folder, f"{name}.npz")).toarray()) for name in params}
same = bool((logits(restored, X_test) == predictions).all())
print(f"{sparsity:.1%} of the weights are 0, {accuracy:.1%} of new digits are right; restored, the same: {same}")
