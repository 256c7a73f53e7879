# %% [markdown]
# # Pruning a trained network
#
# A network 64-64-10 is trained on the digits that come with scikit-learn. Then its layers are pruned one after the
# other, without further training: the weights that are kept change such that the outputs of each layer change little
# on 300 of the images. Magnitude and Wanda keep weights as they are; SparseGPT and ALPS are published methods of large
# language models; Exchanges starts from ALPS and exchanges weights as long as the error falls. In further training with `hard_threshold(1.0, freeze_at=0)`, started from the pruned
# parameters, the zeros stay where they are.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from jaxht import pruning

X, y = load_digits(return_X_y=True)
split = train_test_split(X.astype("float32") / 16, y.astype("int32"), random_state=0)
X_train, X_test, y_train, y_test = map(jnp.asarray, split)


def logits(params, x):
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


def loss(params):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, X_train), y_train).mean()


def step(carry, _):
    params, state = carry
    updates, state = optimiser.update(jax.grad(loss)(params), state, params)
    return (optax.apply_updates(params, updates), state), None


keys = jax.random.split(jax.random.key(0))
params = {"hidden": jax.random.normal(keys[0], (64, 64)) / 8, "out": jax.random.normal(keys[1], (64, 10)) / 8}
optimiser = optax.adam(1e-2)
(params, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=300))((params, optimiser.init(params)))


# %%
def accuracy(params):
    return 100 * float(jnp.mean(jnp.argmax(logits(params, X_test), axis=1) == y_test))


methods = [pruning.Magnitude(), pruning.Wanda(), pruning.SparseGPT(), pruning.ALPS(), pruning.Exchanges()]
kept = [0.4, 0.2, 0.1]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), constrained_layout=True)
print(f"dense: {accuracy(params):.1f} % of the test images right")
for method in methods:
    name = type(method).__name__
    runs = [pruning.prune_model(logits, params, [X_train[:300]], k, method=method) for k in kept]
    errors = [run.layers[0].error for run in runs]
    rates = [accuracy(run.params) for run in runs]
    print(f"{name:10}", "  ".join(f"{rate:.1f} %" for rate in rates))
    left.plot([100 * (1 - k) for k in kept], errors, "o-", label=name)
    right.plot([100 * (1 - k) for k in kept], rates, "o-")
left.set(xlabel="zeros, %", ylabel="relative error of the hidden layer", yscale="log")
right.set(xlabel="zeros, %", ylabel="test accuracy, %")
right.legend(*left.get_legend_handles_labels(), fontsize="small")
