"""Stationary points of functions of coordinates: derivatives by the implicit function theorem, and
whether it applies."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, Leaf
from jaxht.linalg.eigenvalues import random_vector
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import check_real
from jaxht.linalg.normal_equations import ratio
from jaxht.subproblems.coordinate_functions import FINE_ULPS, INEXACT, Region, SmoothFunction
from jaxht.subproblems.newton import largest

# How far a point may be from a stationary one, relative, in roots of machine epsilon.
STATIONARY_ROOTS = 10.0
# The relative error to which systems with a regular Hessian are solved, at worst.
SOLVED_RTOL = 0.1


@jax.custom_jvp
def attach_derivatives(
    f: SmoothFunction, w: Array, pred: Array, region: Region
) -> tuple[Array, Array]:
    """w and pred as they are, with the derivatives of a stationary point of f, by the implicit
    function theorem.

    On the free coordinates ``H dw = -d(grad f)``; those at a bound, where the gradient points
    outwards, move with it. The derivatives are NaN where w is not stationary or the Hessian not
    regular. They cost :func:`check_regularity`, two gradients and a system.
    """
    return w, pred


@attach_derivatives.defjvp
def _attach_derivatives_jvp(primals: tuple, tangents: tuple) -> tuple:
    f, w, _, region = primals
    check_real(w)  # the transpose of a Hermitian matrix is another one
    f_dot, *_, region_dot = tangents
    # As a call, so that derivatives of this rule know that w depends on f.
    w, pred = attach_derivatives(*primals)
    free = region.free(w, _gradient(f, w))
    bound_dot = jnp.zeros_like(w)
    if region.bounds is not None:
        lower_dot, upper_dot = region_dot.bounds
        held_dot = jnp.where(w <= region.bounds[0], lower_dot, upper_dot)
        bound_dot = jnp.where(region.inside & ~free, held_dot, 0).astype(w.dtype)
    _, gradient_dot = jax.jvp(_gradient, (f, w), (f_dot, bound_dot))
    solve = f.solver(w, pred, free, 0.0, FINE_ULPS * machine_eps(w))
    step = solve(jnp.where(free, gradient_dot, 0))
    # A factor, so that derivatives in reverse mode are NaN as well.
    stationary, regular, _ = check_regularity(*lax.stop_gradient((f, w, region)))
    w_dot = (bound_dot - step) * jnp.where(stationary & regular, 1, jnp.nan).astype(w.dtype)
    _, pred_dot = jax.jvp(lambda f, w: f.predict(w), (f, w), (f_dot, w_dot))
    return (w, pred), (w_dot, pred_dot)


class Regularity(NamedTuple):
    """What the implicit function theorem requires of a stationary point.

    Attributes:
        stationary: bool, whether a Newton step is at most STATIONARY_ROOTS roots of machine epsilon
            long, relative to w.
        regular: bool, whether a system with the Hessian is solved to SOLVED_RTOL whose solution is
            known and lies where the Hessian is least.
        strict: bool, whether the gradient is not about 0 at any bound that holds a coordinate: a
            Newton step on all coordinates would cross the bound.
    """

    stationary: Leaf
    regular: Leaf
    strict: Leaf


def check_regularity(f: SmoothFunction, w: Array, region: Region) -> Regularity:
    """Check the requirements at w, by four systems, one of them roughly, and four products with the
    Hessian; with bounds by a further system."""
    pred = f.predict(w)
    gradient = f.gradient(w, pred)
    tolerance = STATIONARY_ROOTS * machine_eps(w) ** 0.5

    def newton_step(free):
        return f.solver(w, pred, free, 0.0, INEXACT)(jnp.where(free, gradient, 0))

    free = region.free(w, gradient)
    step = newton_step(free)
    stationary = jnp.vdot(step, step) <= tolerance**2 * jnp.vdot(w, w)
    strict = jnp.array(True)
    if region.bounds is not None:
        lower, upper = region.bounds
        at_bound = region.inside & ((w <= lower) | (w >= upper))
        least = tolerance * jnp.sqrt(jnp.vdot(w, w))
        is_small = jnp.abs(newton_step(region.inside)) <= least
        strict = ~jnp.any(at_bound & is_small)
    return Regularity(stationary, _is_regular(f, w, pred, free), strict)


def _is_regular(f: SmoothFunction, w: Array, pred: Array, free: Array) -> Array:
    """Whether systems with the Hessian on the free coordinates can be solved: two steps of inverse
    iteration.

    A random right-hand side b has a part in the null space of a singular H. A factorisation, which
    rounding has made regular, multiplies that part by the inverse of machine epsilon in its
    solution z; conjugate gradients may do so, or leave it in the residual b - H z. Hence one of
    both is nearly a null vector, which solving ``H v = H u`` for a sum u of both loses. For a
    regular H, u is close to the eigenvector of the least eigenvalue, for which rounding matters
    most. A coordinate without curvature is in the residual. Conjugate gradients may also diverge,
    to a u which says nothing: then z is longer than a regular H allows, ``|z| |H| > SOLVED |b| /
    eps``. All in units in which the diagonal of H is about 1.
    """
    eps = machine_eps(w)
    curvatures = f.curvatures()
    scale = jnp.sqrt(jnp.where(curvatures > 0, curvatures, 1))
    solve = f.solver(w, pred, free, 0.0, FINE_ULPS * eps)

    def product(v):
        _, image = jax.jvp(lambda w: _gradient(f, w), (w,), (v,))
        return jnp.where(free, image, 0)

    known = jnp.where(free, random_vector(w.size, w.dtype).reshape(w.shape), 0)
    # About |H|: that of a random vector.
    size = ratio(largest(product(known / scale) / scale), largest(known))
    growth: Any = 0.0
    # A second time for null vectors orthogonal to the first b: rounding errors are not.
    for _ in range(2):
        b = scale * known
        z = solve(b)
        growth = jnp.maximum(growth, ratio(largest(scale * z), largest(known)))
        known = _unit(scale * z) + _unit((b - product(z)) / scale) / 2  # the two do not cancel
    error = scale * solve(product(known / scale)) - known
    is_solved = jnp.vdot(error, error) <= SOLVED_RTOL**2 * jnp.vdot(known, known)
    return is_solved & (growth * size * eps <= SOLVED_RTOL)


def _unit(v: Array) -> Array:
    v = v * ratio(1.0, largest(v))  # its square may overflow
    return v * ratio(1.0, jnp.sqrt(jnp.vdot(v, v)))


def _gradient(f: SmoothFunction, w: Array) -> Array:
    return f.gradient(w, f.predict(w))
