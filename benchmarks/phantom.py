"""An image from 30 % of its Fourier transform: thresholding and the lasso, given the same seconds.

The problems are those of docs/gallery/phantom.py, which runs first.
"""

import functools
import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxht
from benchmarks.timing import interleaved

ROOT = Path(__file__).parents[1]
PENALTIES = (0.01, 0.003, 0.001, 0.0003)
MAX_STEPS = 100  # of CGIHT
TIMED = 20  # steps that are timed


def main() -> None:
    """Print the seconds of steps, without compiling, and the peak signal to noise that they reach."""
    matplotlib.use("agg")
    page = runpy.run_path(str(ROOT / "docs" / "gallery" / "phantom.py"))
    W, image = page["W"], page["image"]

    @jax.jit
    def run(f: Any, constraint: Any, solver: Any, max_steps: Any) -> jax.Array:
        found = jaxht.solve(f, constraint, solver, stop=jaxht.Stop(max_steps=max_steps))
        error = (W @ found.x).real.reshape(image.shape) - image
        return -10 * jnp.log10(jnp.mean(error**2))

    for sampling, A in page["F"].items():
        y = A @ image.ravel().astype(complex)
        f = jaxht.LeastSquares(A @ W, y, mean=False, weights=page["weights"][sampling])
        cgiht = functools.partial(run, f, jaxht.Sparse(page["k"]), jaxht.CGIHT())
        lassos = {
            l1: functools.partial(run, f, jaxht.Sparse(image.size), jaxht.baselines.FISTA(l1))
            for l1 in PENALTIES
        }
        steps = {"CGIHT": cgiht, "lasso": lassos[PENALTIES[0]]}  # one program for all penalties
        calls = {name: functools.partial(call, TIMED) for name, call in steps.items()}
        seconds = {
            name: float(np.median(turns)) / TIMED
            for name, turns in interleaved(calls, repeats=3).items()
        }
        num_steps = round(MAX_STEPS * seconds["CGIHT"] / seconds["lasso"])
        print(f"\n{sampling} frequencies, {MAX_STEPS * seconds['CGIHT']:.2f} s each")
        print(f"  CGIHT         {MAX_STEPS:5d} steps {cgiht(MAX_STEPS):6.1f} dB", flush=True)
        for l1, lasso in lassos.items():
            print(f"  lasso, {l1:<7}{num_steps:5d} steps {lasso(num_steps):6.1f} dB", flush=True)


if __name__ == "__main__":
    main()
