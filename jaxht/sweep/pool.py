"""A pool of lanes on a device, as the device and the host hold it.

A pool is an array of lanes, (rows, lanes). The lanes of a row hold once what their trials share,
such as a design matrix, so that products with it are matrix-matrix products. Each row has a buffer
of trials that are drawn and wait for a lane ("staged").
"""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxht._typing import Array, Leaf


class Inputs(NamedTuple):
    """What identifies some trials of a cell, on the device."""

    seed: Any  # of the root key
    # Hash, and traced coordinates, on the axes that the cells of a row share.
    shared: tuple[Any, dict[str, Any]]
    # Hash of the coordinates that identify the problem, and the other traced coordinates.
    own: tuple[Any, dict[str, Any]]
    trials: Any  # (num_trials,) int32, indices of the trials


class Trials(NamedTuple):
    """Some trials on the device, each leaf with axes in front."""

    cells: Any  # index of the cell of each, int32
    trials: Any  # its index in the cell, int32
    own: Any  # leaves of the case
    carry: Any  # of the run


class State(NamedTuple):
    """A pool on the device."""

    rows: list[Leaf]  # the leaves of the cases that a row holds once, each (rows, ...)
    # The trials that wait for a lane, (rows, num_batches * batch, ...). Batch number i of a row is
    # at i mod num_batches.
    staged: Trials
    sizes: Leaf  # (rows, num_batches) int32, how many trials of a batch count
    num_staged: Leaf  # (rows,) int32, how many batches a row has been given
    num_done: Leaf  # (rows,) int32, of how many of them lanes have taken all
    num_taken: Leaf  # (rows,) int32, how many trials of the next batch lanes have taken
    lanes: Trials  # the trials that run, (rows, lanes, ...)
    occupied: Leaf  # (rows, lanes) bool, whether a lane has one


class Chunk(NamedTuple):
    """What the host reads after a chunk of steps."""

    num_ended: Leaf  # how many trials have ended
    rows: Leaf  # (LOG * rows * lanes,) the row of each
    cells: Leaf  # the same, the index of its cell
    trials: Leaf  # the same, its index in the cell
    results: dict[str, Leaf]  # the same, by name
    num_done: Leaf  # as in the state
    occupied: Leaf  # the same
    lane_cells: Leaf  # (rows, lanes), the cells of the lanes
    lane_trials: Leaf  # the same, the trials
    steps: Leaf  # number of steps of the pool
    busy: Leaf  # number of steps of lanes with a running trial, over all lanes


class Wants(enum.IntEnum):
    """What the host has for a row."""

    NOTHING = 0
    ALWAYS = 1  # trials of cells that share what the row holds
    WHEN_EMPTY = 2  # other trials, for a row without any


class Pool(NamedTuple):
    """The compiled functions of a pool on one device: methods of :class:`Program`."""

    rows: int  # shape of the pool
    lanes: int
    batch: int  # number of trials that are drawn at once for a row
    num_batches: int  # how many of them can wait in a row
    ahead: bool  # whether a chunk is submitted before the results of the last one are read
    memory: int  # bytes that the functions take on the device
    draw_shared: Callable[..., list[Array]]
    start_trials: Callable[..., Any]
    init_state: Callable[..., State]
    stage_trials: Callable[..., State]
    run_chunk: Callable[..., tuple[State, Chunk]]
