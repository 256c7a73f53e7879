# %% [markdown]
# # A perceptron with few weights
#
# A network 64-64-10 is trained on the digits that come with scikit-learn, with hard thresholding as the last
# transformation of the optax chain. The fraction of weights that is kept is a traced number, so that one `vmap` trains
# networks of four densities in parallel.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from jaxht import transforms

X, y = load_digits(return_X_y=True)
split = train_test_split(X.astype("float32") / 16, y.astype("int32"), random_state=0)
X_train, X_test, y_train, y_test = map(jnp.asarray, split)


def logits(params, x):
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


def train(density, key):
    schedule = transforms.cubic(density, begin=0, end=300)  # from dense to sparse in half of the steps
    optimiser = optax.chain(optax.adam(1e-2), transforms.hard_threshold(schedule, scope="global"))
    keys = jax.random.split(key)
    params = {"hidden": jax.random.normal(keys[0], (64, 64)) / 8, "out": jax.random.normal(keys[1], (64, 10)) / 8}

    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, X_train), y_train).mean()

    def step(carry, _):
        params, state = carry
        updates, state = optimiser.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimiser.init(params)), length=600)
    return params, jnp.mean(logits(params, X_test).argmax(axis=1) == y_test)


# %%
densities = jnp.array([1.0, 0.2, 0.05, 0.02])
params, accuracy = jax.jit(jax.vmap(train, (0, None)))(densities, jax.random.key(0))
print([f"{d:.0%} of the weights: {a:.1%}" for d, a in zip(densities.tolist(), accuracy.tolist())])

# %%
figure, panels = plt.subplots(1, 4, figsize=(8, 2.4), layout="constrained")
for axes, weights, density in zip(panels, params["hidden"], densities):
    axes.imshow(jnp.abs(weights) > 0, cmap="gray_r", interpolation="nearest")
    axes.set_title(f"{density:.0%} kept")
    axes.set_axis_off()
