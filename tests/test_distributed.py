"""Several processes with a part of A each: examples/distributed.py, killed in the middle and
started again."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

import jaxht
from examples import distributed

pytest.importorskip("orbax.checkpoint")

pytestmark = pytest.mark.usefixtures("all_quickly")


def start(*arguments):
    command = [sys.executable, "-m", "examples.distributed", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_is_killed_and_the_run_goes_on(tmp_path):
    """The other ends with an error within a minute; four processes go on from the last checkpoint
    of two."""
    common = ["--folder", tmp_path, "--every", 2]
    one = ["--address", f"localhost:{distributed.free_port()}", "--processes", 2, *common]
    first, second = (start(*one, "--process", process) for process in range(2))
    try:
        for line in first.stdout:
            if line.startswith("step 6,"):
                second.kill()
                break
        begin = time.monotonic()
        _, error = first.communicate(timeout=100)
        assert time.monotonic() - begin < 60
        assert first.returncode != 0 and any(
            word in error for word in ("Error", "UNAVAILABLE", "INTERNAL", "closed")
        )
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert not (tmp_path / "result.json").exists()

    again = start("--processes", 4, *common)
    output, error = again.communicate(timeout=300)
    assert again.returncode == 0, error[-3000:]
    begun = int(output.split("goes on at step ")[1].split()[0])
    assert 4 <= begun <= 20  # at most one checkpoint before the last step that was reported
    found = json.loads((tmp_path / "result.json").read_text())

    parts = [distributed.own_rows(process, 4) for process in range(4)]
    A, y = np.vstack([A.toarray() for A, _ in parts]), np.concatenate([y for _, y in parts])
    problem, x0, key = distributed.problem(A, y)
    alone = jaxht.solve(problem.objective, problem.constraint, problem.solver, stop=problem.stop)
    assert x0 is None and key is None
    assert (
        found["support"] == alone.support.numpy().tolist()
        and len(found["support"]) == distributed.K
    )
    assert found["status"] == alone.status
    np.testing.assert_allclose(found["value"], alone.value, rtol=1e-5)
