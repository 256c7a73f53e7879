"""The methods of `jaxht.pruning` as their sources describe them, in loops of NumPy, in float64.

Weights are (inputs, outputs) and H is X'X. ``keep(scores)`` gives the mask of the largest scores.
"""

import itertools

import numpy as np


def sparsegpt(W, H, keep_block, *, damping=0.01, block_size=128, group=None):
    """Algorithm 1 of Frantar & Alistarh 2023; `keep_block(scores, first)` masks a block, or with
    `group` that many inputs."""
    W = W.copy()
    d, _ = W.shape
    H = 2 * H
    H = H + damping * np.mean(np.diagonal(H)) * np.eye(d)
    U = np.linalg.cholesky(np.linalg.inv(H)).T
    mask = np.zeros(W.shape, bool)
    for first in range(0, d, block_size):
        last = min(first + block_size, d)
        errors = np.zeros((last - first, W.shape[1]))
        for i in range(first, last):
            if group is None and i == first:
                diagonal = np.diagonal(U)[first:last, None]
                mask[first:last] = keep_block(np.abs(W[first:last]) / diagonal, first)
            if group is not None and i % group == 0:
                part = slice(i, i + group)
                mask[part] = keep_block(np.abs(W[part]) / np.diagonal(U)[part, None], i)
            for j in range(W.shape[1]):
                kept = W[i, j] if mask[i, j] else 0.0
                errors[i - first, j] = (W[i, j] - kept) / U[i, i]
                for later in range(i + 1, last):
                    W[later, j] -= U[i, later] * errors[i - first, j]
                W[i, j] = kept
        W[last:] -= U[first:last, last:].T @ errors
    return W, mask


def alps(W, H, keep, *, damping=0.01, penalty=0.1, max_steps=300, num_refinements=10):
    """Algorithms 1 and 2 of Meng et al. 2024, with the constants of their program."""
    d, _ = W.shape
    H = H + damping * np.mean(np.diagonal(H)) * np.eye(d)
    norms = np.sqrt(np.diagonal(H))
    H = H / norms[:, None] / norms
    dense = W * norms[:, None]
    products = H @ dense
    values, Q = np.linalg.eigh(H)
    last = keep(dense)
    D = np.where(last, dense, 0)
    V = np.zeros_like(D)
    rho = penalty
    has_moved = False
    for step in range(1, max_steps + 1):
        B = Q @ np.diag(1 / (values + rho)) @ Q.T @ (products - V + rho * D)
        target = B + V / rho
        mask = keep(target)
        D = np.where(mask, target, 0)
        V = V + rho * (B - D)
        if step % 3:
            continue
        change = np.sum(mask != last) / np.sum(mask)
        last = mask
        if change > 0.1:
            rho, has_moved = 1.3 * rho, True
        elif change > 0.005:
            rho, has_moved = 1.2 * rho, True
        elif change > 0 and has_moved:
            rho = 1.1 * rho
        elif change > 0:
            rho = rho / 5
            D = np.where(keep(dense), dense, 0)
            V = np.zeros_like(D)
        elif has_moved:
            break
        else:
            rho = rho / 5
        if step > 30 and change < 3e-4:
            break
    mask = keep(B)
    W = np.where(mask, B, 0)
    for j in range(W.shape[1]):
        S = mask[:, j]
        W[S, j] = conjugate_gradients(H[np.ix_(S, S)], products[S, j], W[S, j], num_refinements)
    return W / norms[:, None], mask


def conjugate_gradients(A, b, x, num_steps):
    residual = b - A @ x
    direction = residual
    for _ in range(num_steps):
        if residual @ residual == 0:
            break
        length = residual @ residual / (direction @ A @ direction)
        x = x + length * direction
        after = residual - length * A @ direction
        direction = after + (after @ after) / (residual @ residual) * direction
        residual = after
    return x


def least_error(w, H, support):
    """The error of one output, refitted on a support."""
    S = list(support)
    x = np.zeros_like(w)
    x[S] = np.linalg.solve(H[np.ix_(S, S)], (H @ w)[S])
    return (x - w) @ H @ (x - w)


def exchange(w, H, support, may_exchange, rtol):
    """The best exchange, again and again, each pair refitted; until none helps."""
    support = set(support)
    error = least_error(w, H, support)
    while True:
        pairs = [
            (least_error(w, H, support - {i} | {j}), i, j)
            for i, j in itertools.product(support, set(range(len(w))) - support)
            if may_exchange(i, j)
        ]
        best, i, j = min(pairs, default=(np.inf, 0, 0))
        if not best < error * (1 - rtol):
            return support, error
        support, error = support - {i} | {j}, best


def largest_convex(points):
    """The largest convex function below some points, at all integers between: the least of all
    chords."""
    values = {}
    for x in range(points[0][0], points[-1][0] + 1):
        chords = [
            a + (b - a) * (x - first) / max(last - first, 1)
            for (first, a), (last, b) in itertools.combinations_with_replacement(points, 2)
            if first <= x <= last
        ]
        values[x] = min(chords)
    return values
