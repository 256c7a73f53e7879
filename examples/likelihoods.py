"""Any likelihood as an objective: the edges of an Ising model, and the hazards of a Cox model.

``python -m examples.likelihoods``
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxht
from jaxht import ensembles, metrics


def ising(theta: jax.Array, X: jax.Array) -> jax.Array:
    """Minus the mean log pseudo-likelihood of couplings theta (p (p - 1) / 2) for spins X (n, p) in
    {-1, +1}.

    ``sum_i log(1 + exp(-2 x_i sum_j theta_ij x_j))`` a sample (Besag 1975).
    """
    p = X.shape[1]
    rows, columns = np.triu_indices(p, 1)
    upper = jnp.zeros((p, p), theta.dtype).at[rows, columns].set(theta)
    fields = jnp.matmul(X, upper + upper.T, precision=lax.Precision.HIGHEST)
    return jnp.mean(jnp.sum(jnp.logaddexp(0, -2 * X * fields), axis=1))


def cox(x: jax.Array, A: jax.Array, event: jax.Array) -> jax.Array:
    """Minus the log partial likelihood of hazards exp(A x), divided by n, for samples in falling
    order of time.

    ``sum_{i: event} (log sum_{j: t_j >= t_i} exp(a_j.x) - a_i.x)``; without ties (Cox 1972, 1975).
    """
    u = jnp.matmul(A, x, precision=lax.Precision.HIGHEST)
    largest = lax.stop_gradient(jnp.max(u))
    at_risk = jnp.log(jnp.cumsum(jnp.exp(u - largest))) + largest
    return jnp.mean(jnp.where(event, at_risk - u, 0))


def spins(key: jax.Array, theta: jax.Array, n: int, p: int, num_sweeps: int = 200) -> jax.Array:
    """n independent chains of Gibbs sampling, all spins in turn."""
    rows, columns = np.triu_indices(p, 1)
    upper = jnp.zeros((p, p)).at[rows, columns].set(theta)
    couplings = upper + upper.T

    def update(t: jax.Array, X: jax.Array) -> jax.Array:
        i = t % p
        up = jax.random.bernoulli(jax.random.fold_in(key, t), jax.nn.sigmoid(2 * X @ couplings[i]))
        return X.at[:, i].set(jnp.where(up, 1.0, -1.0))

    return jax.jit(lambda X: lax.fori_loop(0, num_sweeps * p, update, X))(jnp.ones((n, p)))


def survival(key: jax.Array, n: int, d: int, K: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Features in falling order of time, whether the time is that of an event (else of censoring),
    and the truth."""
    keys = jax.random.split(key, 4)
    A, x = jax.random.normal(keys[0], (n, d)), ensembles.sign_signal(keys[1], d=d, K=K)
    failure = jax.random.exponential(keys[2], (n,)) * jnp.exp(-(A @ x))
    censoring = 2 * jax.random.exponential(keys[3], (n,))
    order = jnp.argsort(-jnp.minimum(failure, censoring))
    return A[order], (failure <= censoring)[order], x


def main(
    p: int = 20, num_edges: int = 20, n: int = 2000, d: int = 500, K: int = 10
) -> tuple[float, float]:
    """Print how well both are recovered, and return the F-scores."""
    size = p * (p - 1) // 2
    theta = 0.4 * ensembles.sign_signal(jax.random.key(0), d=size, K=num_edges)
    X = spins(jax.random.key(1), theta, n, p)
    edges = jaxht.solve(jaxht.Custom(ising, X, like=size), jaxht.Sparse(num_edges), jaxht.HTP())
    f_edges = float(metrics.f_score(edges.x, theta))
    print(
        f"Ising, {n} samples of {p} spins: {num_edges} of {size} edges found with F-score {f_edges:.2f}"
    )

    A, event, x = survival(jax.random.key(2), n // 4, d, K)
    hazards = jaxht.solve(jaxht.Custom(cox, A, event, like=d), jaxht.Sparse(K), jaxht.HTP())
    f_hazards = float(metrics.f_score(hazards.x, x))
    print(
        f"Cox, {len(event)} patients, {int(event.sum())} events: {K} of {d} features, F-score {f_hazards:.2f}"
    )
    for result in (edges, hazards):
        print(f"  {result.reason} after {int(result.num_steps)} steps, f = {result.value:.4f}")
    return f_edges, f_hazards


if __name__ == "__main__":
    main()
