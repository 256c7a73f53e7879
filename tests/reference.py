"""The algorithms as their papers print them: plain NumPy, one vector, loops allowed, float64. Slow
and obvious."""

import dataclasses
import itertools
import math

import numpy as np


def largest(z, k):
    """supp(z, k): the k indices of largest magnitude, ties to the lowest index."""
    order = sorted(range(len(z)), key=lambda i: (-abs(z[i]), i))
    return sorted(order[: max(k, 0)])


def hard_threshold(z, k):
    """H_k(z)."""
    x = np.zeros_like(z)
    for i in largest(z, k):
        x[i] = z[i]
    return x


@dataclasses.dataclass(frozen=True)
class LeastSquares:
    """c/2 ||Ax - y||^2 + l2/2 ||x||^2, c = 1 or 1/n."""

    A: np.ndarray
    y: np.ndarray
    l2: float = 0.0
    mean: bool = False

    @property
    def c(self):
        return 1 / len(self.y) if self.mean else 1.0

    def value(self, x):
        r = self.A @ x - self.y
        return self.c / 2 * (r @ r) + self.l2 / 2 * (x @ x)

    def gradient(self, x):
        return self.c * self.A.T @ (self.A @ x - self.y) + self.l2 * x

    def sample_gradient(self, i, x):
        """grad f_i, f = (1/n) sum_i f_i."""
        return len(self.y) * self.c * (self.A[i] @ x - self.y[i]) * self.A[i] + self.l2 * x

    def curvature(self, v):
        return self.c * np.sum((self.A @ v) ** 2) + self.l2 * (v @ v)

    def minimise(self, F):
        """argmin f on F, of least norm."""
        F = list(F)
        rows = np.vstack([np.sqrt(self.c) * self.A[:, F], np.sqrt(self.l2) * np.eye(len(F))])
        x = np.zeros(self.A.shape[1])
        x[F] = np.linalg.lstsq(
            rows, np.concatenate([np.sqrt(self.c) * self.y, np.zeros(len(F))]), rcond=None
        )[0]
        return x


def iht(f, x, k, eta, momentum=0.0, nesterov=False, project=hard_threshold):
    """Shen & Li 2018, (3.4); heavy ball: Zhou, Yuan & Feng 2018, Algorithm 1 (O2); Nesterov: Khanna
    & Kyrillidis."""
    prev = x
    while True:
        yield x
        u = x + momentum * (x - prev)
        grad = f.gradient(u if nesterov else x)
        prev, x = x, project(u - eta * grad, k)


def niht(f, x, k, c=0.01, q=2.0):
    """Blumensath & Davies 2010, Algorithm 1."""
    while True:
        yield x
        g = f.gradient(x)
        S = set(np.flatnonzero(x)) if np.any(x) else set(largest(g, k))
        g_S = np.array([g[i] if i in S else 0.0 for i in range(len(g))])
        eta = g_S @ g_S / f.curvature(g_S) if np.any(g_S) else 0.0
        while True:
            trial = hard_threshold(x - eta * g, k)
            move = trial - x
            if set(np.flatnonzero(trial)) == S or eta * f.curvature(move) <= (1 - c) * (
                move @ move
            ):
                break
            eta /= q * (1 - c)
        x = trial


def cgiht(f, x, k, theta=None):
    """Blanchard, Tanner & Wei 2015: CGIHT restarted, or with theta CGIHT projected; from x = 0 the
    first length is the exact one on supp(g, k)."""
    T, before, p, size = None, None, np.zeros_like(x), 0.0
    restart = True
    while True:
        yield x
        r = -f.gradient(x)
        if T is None:
            T = set(np.flatnonzero(x)) or set(largest(r, k))
        on = np.array([i in T for i in range(len(x))])
        r_T = np.where(on, r, 0)
        if theta is None:
            beta = r_T @ r_T / size if T == before else 0.0
            p = r + beta * p
            restart = True
        else:
            # After a step of steepest descent p is the residual on T, else the conjugate direction.
            p = r_T if restart else r_T + (r_T @ r_T / size) * p
            is_far = np.linalg.norm(r - p) > theta * np.linalg.norm(r_T)
            restart = before is None or is_far
        before, size = T, r_T @ r_T
        if theta is None or restart:
            direction = p if theta is None else r
            p_T = np.where(on, direction, 0)
            w = x + (r_T @ p_T / f.curvature(p_T)) * direction
            x, T = hard_threshold(w, k), set(largest(w, k))
        else:
            x = x + (r_T @ r_T / f.curvature(p)) * p


def exact_length(f, g, p):
    """-<g, p> / p'Hp, 0 where p is."""
    return -(g @ p) / f.curvature(p) if np.any(p) else 0.0


def alps(f, x, k, memory=1, debias=True, expand=True):
    """Kyrillidis & Cevher 2011, 0-ALPS and 1-ALPS; without expansion of the support FIHT, Wei
    2015."""
    prev = x
    while True:
        yield x
        move = x - prev
        v = x + exact_length(f, f.gradient(x), move) * move if memory else x
        g = f.gradient(v)
        S = set(np.flatnonzero(v))
        if expand:
            S |= set(largest([0.0 if i in S else g_i for i, g_i in enumerate(g)], k))
        elif not S:
            S = set(largest(g, k))
        g_S = np.array([g_i if i in S else 0.0 for i, g_i in enumerate(g)])
        mu = exact_length(f, g, -g_S)
        # ALPS steps along g_S, and FIHT along g.
        w = hard_threshold(v - mu * (g_S if expand else g), k)
        prev, x = x, w
        if debias:
            g = f.gradient(w)
            g_T = np.where(w != 0, g, 0)
            x = w - exact_length(f, g, -g_T) * g_T


def htp(f, x, k, eta):
    """Yuan, Li & Zhang 2018, Algorithm 1: yields x and the support it was minimised on; the first
    is None."""
    F = None
    while True:
        yield x, F
        F = largest(x - eta * f.gradient(x), k)
        x = f.minimise(F)


def backtracking_htp(f, x, k):
    """HTP from eta = 256 / M_1, M_1 the largest curvature along a coordinate: halved until f
    decreases. Where x has nonzeros, they are refitted first.

    Yields x after every refit, also after those that are rejected; ends where the support changes
    no more.
    """
    longest = 256 / max(f.curvature(e) for e in np.eye(len(x)))
    current, eta, rejected = None, longest, None
    if np.any(x):
        yield x
        current = [int(i) for i in np.flatnonzero(x)]
        x = f.minimise(current)
    while True:
        yield x
        F = largest(x - eta * f.gradient(x), k)
        while F == rejected:
            eta /= 2
            F = largest(x - eta * f.gradient(x), k)
        if F == current:
            return
        new = f.minimise(F)
        if current is None or f.value(new) < f.value(x):
            x, current, eta, rejected = new, F, longest, None
        else:
            rejected = F


def pht(f, x, k, eta, r):
    """Axiotis & Sviridenko 2020, §1.2: as HTP, with at most r new coordinates a step; from fewer
    than k the next are HTP's."""
    S = [i for i in range(len(x)) if x[i] != 0]
    while True:
        yield x
        z = x - eta * f.gradient(x)
        outside = np.array([0.0 if i in S else z[i] for i in range(len(z))])
        J = set(S) | set(largest(outside, r if len(S) == k else k))
        S = largest(np.array([z[i] if i in J else 0.0 for i in range(len(z))]), k)
        x = f.minimise(S)


def cosamp(f, x, k, expand=2, debias=False):
    """Needell & Tropp 2009, Algorithm 1; with debiasing as Yuan, Li & Zhang 2018, §6.1."""
    while True:
        yield x
        Omega = set(largest(f.gradient(x), expand * k)) | set(np.flatnonzero(x))
        b = f.minimise(sorted(Omega))
        x = f.minimise(largest(b, k)) if debias else hard_threshold(b, k)


def subspace_pursuit(f, x, k):
    """Dai & Milenkovic 2009, Algorithm 1: ends where f does not fall. Where x has nonzeros, they are
    refitted first."""
    yield x
    started = np.any(x)
    if started:
        x = f.minimise(list(np.flatnonzero(x)))
        yield x
    while True:
        Omega = set(largest(f.gradient(x), k)) | set(np.flatnonzero(x))
        b = f.minimise(sorted(Omega))
        new = f.minimise(largest(b, k))
        if started and f.value(new) >= f.value(x):
            return
        started, x = True, new
        yield x


def forward_selection(f, x, k, choose):
    """From the support of x, one coordinate after another: that which ``choose(f, x, S)`` names."""
    yield x
    S = list(np.flatnonzero(x))
    if S:
        x = f.minimise(S)
        yield x
    while len(S) < k:
        S.append(choose(f, x, S))
        x = f.minimise(sorted(S))
        yield x


def omp(f, x, k):
    """Axiotis & Sviridenko 2020, Algorithm 2: the coordinate of the largest gradient."""

    def choose(f, x, S):
        return largest([0.0 if i in S else g for i, g in enumerate(f.gradient(x))], 1)[0]

    return forward_selection(f, x, k, choose)


def ols(f, x, k):
    """Chen, Billings & Luo 1989: the coordinate that gives the least minimum of f."""

    def choose(f, x, S):
        others = [i for i in range(len(x)) if i not in S]
        return min(others, key=lambda i: f.value(f.minimise(sorted([*S, i]))))

    return forward_selection(f, x, k, choose)


def smallest(x, S):
    """argmin_{j in S} |x_j|."""
    return min(sorted(S), key=lambda j: (abs(x[j]), j))


def exchanges(f, x, k, entering):
    """Swaps until f does not fall, from the support of x completed by OMP."""
    yield x
    *_, x = omp(f, x, k)
    S = set(np.flatnonzero(x))
    while True:
        yield x
        j = smallest(x, S)
        S = S - {j} | {entering(x, S, j)}
        new = f.minimise(sorted(S))
        if f.value(new) >= f.value(x) * (1 - 1e-12):
            return
        x = new


def ompr(f, x, k):
    """Axiotis & Sviridenko 2020, Algorithm 3."""

    def entering(x, S, j):
        return largest([0.0 if i in S else g for i, g in enumerate(f.gradient(x))], 1)[0]

    return exchanges(f, x, k, entering)


def exhaustive_local_search(f, x, k):
    """Axiotis & Sviridenko 2020, Algorithm 4."""

    def entering(x, S, j):
        others = [i for i in range(len(x)) if i not in S]
        return min(others, key=lambda i: f.value(f.minimise(sorted(S - {j} | {i}))))

    return exchanges(f, x, k, entering)


def foba(f, x, k, threshold=0.0, ratio=0.5):
    """Zhang 2008, Algorithm 2: removals with coefficients held, against the gain of the step that
    reached the size."""
    yield x
    S, gains = set(np.flatnonzero(x)), {}
    if S:
        x = f.minimise(sorted(S))
        yield x
    while True:
        without = {j: f.value(np.where(np.arange(len(x)) == j, 0, x)) for j in S}
        j = min(sorted(S), key=without.get, default=None)
        if j is not None and without[j] - f.value(x) <= ratio * gains.get(len(S), 0.0):
            S = S - {j}
            x = f.minimise(sorted(S))
        elif len(S) == k:
            yield x
            return
        else:
            falls = [
                g**2 / f.curvature(unit)
                for g, unit in zip(f.gradient(x), np.eye(len(x)), strict=True)
            ]
            i = max((i for i in range(len(x)) if i not in S), key=lambda i: (falls[i], -i))
            new = f.minimise(sorted(S | {i}))
            gain = f.value(x) - f.value(new)
            if gain <= threshold:
                return
            S, x = S | {i}, new
            gains[len(S)] = gain
        yield x


def htp_outcome(f, x, k, eta, num_steps):
    """How the supports F_1, F_2, ... go on: ("stable" | "cycle" | "open", period, number of
    supports before)."""
    seen = []
    for _, F in itertools.islice(htp(f, x, k, eta), 1, num_steps + 1):
        if F in seen:
            first = seen.index(F)
            return ("stable" if first == len(seen) - 1 else "cycle"), len(seen) - first, first
        seen.append(F)
    return "open", 0, 0


def exhaustive(f, d, k):
    """The global minimum over k-sparse vectors: (value, support)."""
    return min((f.value(f.minimise(F)), F) for F in itertools.combinations(range(d), k))


def plausible(successes, trials, rate):
    """Whether so few successes still happen once in a million times if each trial succeeds with
    chance ``rate``."""
    terms = (
        math.comb(trials, i) * rate**i * (1 - rate) ** (trials - i) for i in range(successes + 1)
    )
    return sum(terms) > 1e-6


# Stochastic methods are given the indices that they draw.


def sght(f, x, k, eta, batches, project=hard_threshold):
    """Nguyen, Needell & Woolf 2017, Algorithm 1: yields x after each batch."""
    for batch in batches:
        x = project(x - eta * np.mean([f.sample_gradient(i, x) for i in batch], axis=0), k)
        yield x


def htsvrg(f, snapshot, k, eta, stages, radius=math.inf, project=hard_threshold):
    """Shen & Li 2018, Algorithm 1: yields the snapshots; a stage is its m batches and j, m for the
    last iterate."""
    for batches, j in stages:
        mu, iterates = f.gradient(snapshot), [snapshot]
        for batch in batches:
            x = iterates[-1]
            v = (
                np.mean(
                    [f.sample_gradient(i, x) - f.sample_gradient(i, snapshot) for i in batch],
                    axis=0,
                )
                + mu
            )
            r = project(x - eta * v, k)
            iterates.append(r / max(1, np.linalg.norm(r) / radius))
        snapshot = iterates[j]
        yield snapshot


def htsaga(f, x, k, eta, batches, project=hard_threshold):
    """Shen & Li 2018, Algorithm 2; the ridge is taken at x. Yields x after each batch."""
    n = len(f.y)
    table = [f.sample_gradient(i, x) - f.l2 * x for i in range(n)]
    for batch in batches:
        new = [f.sample_gradient(i, x) - f.l2 * x for i in batch]
        v = (
            np.mean([g - table[i] for g, i in zip(new, batch, strict=True)], axis=0)
            + np.mean(table, axis=0)
            + f.l2 * x
        )
        for g, i in zip(new, batch, strict=True):
            table[i] = g
        x = project(x - eta * v, k)
        yield x


def hsght(f, x, k, eta, batches, momentum=0.0, project=hard_threshold):
    """Zhou, Yuan & Feng 2018, Algorithm 1: (O1), or with momentum (O2). Yields x after each
    batch."""
    prev = x
    for batch in batches:
        g = np.mean([f.sample_gradient(i, x) for i in batch], axis=0)
        prev, x = x, project(x - eta * g + momentum * (x - prev), k)
        yield x


def covariance_selection(S, mask, num_sweeps=400):
    """The maximum-likelihood precision matrix on a graph, node by node (Hastie, Tibshirani &
    Friedman 2009, 17.1)."""
    p = len(S)
    sigma = S.copy()
    W = np.diag(1 / np.diag(S))
    for sweep in range(num_sweeps):
        for j in range(p):
            rest = np.arange(p) != j
            near = np.flatnonzero(mask[j] & rest)
            beta = np.zeros(p)
            beta[near] = np.linalg.solve(sigma[np.ix_(near, near)], S[near, j])
            sigma[rest, j] = sigma[j, rest] = (sigma @ beta)[rest]
            if sweep == num_sweeps - 1:
                W[j, j] = 1 / (S[j, j] - sigma[j] @ beta)
                W[rest, j] = -beta[rest] * W[j, j]
    return W


def graphical_htp(S, k, step_size, num_steps):
    """GraHTP on edges from the best diagonal matrix, eta halved until f falls: the points after
    each accepted step."""

    def value(W):
        return np.sum(S * W) - np.linalg.slogdet(W)[1]

    def graph(W, eta):
        z = np.abs(np.triu(W - eta * (S - np.linalg.inv(W)), 1))
        mask = np.zeros(S.shape, bool)
        mask.ravel()[np.argsort(-z.ravel(), kind="stable")[:k]] = True
        return mask | mask.T | np.eye(len(S), dtype=bool)

    W, f, own, points = np.diag(1 / np.diag(S)), np.inf, None, []
    for _ in range(num_steps):
        eta = step_size
        while True:
            tried = graph(W, eta)
            if own is not None and np.array_equal(tried, own):
                return points
            new = covariance_selection(S, tried)
            if value(new) < f:
                break
            eta /= 2
        W, f, own = new, value(new), tried
        points.append(W)
    return points


def largest_subtree(z, parents, k):
    """The k entries of the largest sum of squares that contain their parents (-1 for roots)."""
    children = [[j for j in range(len(z)) if parents[j] == i] for i in range(len(z))]

    def best_below(i):
        """Of 0, 1, ... entries at and below i the largest sums, and which entries they are of."""
        found = [(0.0, [])]
        for child in children[i]:
            found = joined(found, best_below(child))
        return [(0.0, []), *[(value + abs(z[i]) ** 2, [i, *chosen]) for value, chosen in found]]

    def joined(first, second):
        sums = [(-math.inf, [])] * min(k + 1, len(first) + len(second) - 1)
        for (i, (u, A)), (j, (v, B)) in itertools.product(enumerate(first), enumerate(second)):
            if i + j < len(sums) and u + v > sums[i + j][0]:
                sums[i + j] = (u + v, A + B)
        return sums

    found = [(0.0, [])]
    for root in np.flatnonzero(np.asarray(parents) < 0):
        found = joined(found, best_below(root))
    return sorted(found[k][1])
