"""A call goes through few files before its program is called, as every argument is prepared once."""

import sys
from pathlib import Path

import numpy as np
import pytest

import jaxht
from jaxht.sklearn import L0Regressor

LIBRARY = str(Path(jaxht.__file__).parent)
N, D = 53, 17


def count_changes(call):
    """How often the file of the running function of the library changes, entering or returning.

    It is counted until the program is called. JAX flattens the library's classes, which is
    not counted.
    """
    files, changes, has_called = [], 0, False

    def observe(frame, event, _):
        nonlocal changes, has_called
        code, caller = frame.f_code, frame.f_back
        is_flattening = any("flatten" in each.f_code.co_name for each in (frame, caller) if each)
        outside = not code.co_filename.startswith(LIBRARY) or is_flattening
        if event not in ("call", "return") or outside or has_called:
            return
        if event == "call" and code.co_name == "call_on_device":
            has_called = True
            return
        before = files[-1] if files else code.co_filename
        if event == "call":
            files.append(code.co_filename)
        else:
            files.pop()
        after = files[-1] if files else before
        changes += before != after

    sys.setprofile(observe)
    try:
        call()
    finally:
        sys.setprofile(None)
    assert has_called
    return changes


def data(n):
    A = np.random.default_rng(0).standard_normal((n, D)).astype(np.float32)
    return A, A[:, 3] + A[:, 5]


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda A, y: jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(2), jaxht.HTP()), 105),
        (lambda A, y: jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(2)), 242),
        (lambda A, y: L0Regressor(2).fit(A, y), 284),
    ],
    ids=["solve", "solve by default", "fit"],
)
def test_few_files_before_a_program_has_called(call, most):
    call(*data(N))  # what is looked up once for each class
    assert count_changes(lambda: call(*data(3 * N))) <= most
