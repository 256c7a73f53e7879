"""Products of a design that is read from a disk, by NumPy, in the memory into which the chunks are
read: on CPUs.

Leading axes are lanes, which share a pass.
"""

from collections.abc import Callable

import numpy as np

from jaxht.designs.reading import Reader


def matvec(reader: Reader, x: np.ndarray) -> np.ndarray:
    """``A x``, from (..., d) to (..., n)."""
    lanes = _flatten_lanes(x)
    n, _ = reader.source.shape
    out = np.empty((len(lanes), n), x.dtype)
    for part, chunk in reader.read():
        out[:, part] = lanes @ chunk.T
    return out.reshape(*x.shape[:-1], -1)


def rmatvec(reader: Reader, r: np.ndarray) -> np.ndarray:
    """``A^T r``, from (..., n) to (..., d)."""
    lanes = _flatten_lanes(r)
    out = _sum(reader, lambda part, chunk: lanes[:, part] @ chunk)
    return out.reshape(*r.shape[:-1], -1)


def gram_product(reader: Reader, v: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``A^T (weights * (A v))``, from (..., d) and (..., n) to (..., d)."""
    lanes = np.broadcast_shapes(v.shape[:-1], weights.shape[:-1])
    v = np.broadcast_to(v, lanes + v.shape[-1:])
    weights = np.broadcast_to(weights, lanes + weights.shape[-1:])
    v = _flatten_lanes(v)
    weights = _flatten_lanes(weights)

    def product(part: slice, chunk: np.ndarray) -> np.ndarray:
        image = v @ chunk.T
        return (weights[:, part] * image) @ chunk

    out = _sum(reader, product)
    return out.reshape(*lanes, -1)


def squared(reader: Reader, weights: np.ndarray) -> np.ndarray:
    """``sum_i weights_i A_ij^2`` for all j, from (..., n) to (..., d)."""
    lanes = _flatten_lanes(weights)
    out = _sum(reader, lambda part, chunk: lanes[:, part] @ np.square(chunk))
    return out.reshape(*weights.shape[:-1], -1)


def columns(reader: Reader, indices: np.ndarray) -> np.ndarray:
    """The columns at ``indices`` (..., k), as rows (..., k, n); 0 where an index is d."""
    n, d = reader.source.shape
    places = indices.reshape(-1)
    inside = places < d
    found = places[inside]
    out = np.zeros((len(places), n), reader.dtype)
    for part, chunk in reader.read():
        out[inside, part] = chunk.take(found, axis=1).T
    return out.reshape(*indices.shape, -1)


def _flatten_lanes(v: np.ndarray) -> np.ndarray:
    return v.reshape(-1, v.shape[-1])


def _sum(reader: Reader, product: Callable[[slice, np.ndarray], np.ndarray]) -> np.ndarray:
    """The sum over the chunks."""
    total: np.ndarray | float = 0.0
    for part, chunk in reader.read():
        total += product(part, chunk)
    return np.asarray(total)
