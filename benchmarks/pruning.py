"""One layer of a network, pruned by each method: seconds, and errors beside those of ALPS.

Inputs are correlated, with a spectrum that falls as 1/i, and weights are normal numbers; 60 % of
all entries become zero.
"""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import interleaved, report
from jaxht import pruning

KEPT = 0.4
# (inputs, outputs)
SHAPES = ((576, 1536), (1536, 576))
NUM_SAMPLES = 8192
QUICK: dict[str, Any] = {
    "SparseGPT": pruning.SparseGPT(),
    "Magnitude": pruning.Magnitude(),
    "Wanda": pruning.Wanda(),
    "ALPS": pruning.ALPS(),
}
# Timed once.
SLOW: dict[str, Any] = {"Exchanges": pruning.Exchanges()}


def main() -> None:
    """Print times and errors."""
    for shape in SHAPES:
        compare(*shape)


def layer(num_inputs: int, num_outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights of a layer and the Gram matrix of its inputs, float32."""
    rng = np.random.default_rng(num_inputs)
    scales = 1 / np.sqrt(1 + np.arange(num_inputs))
    mixing = np.linalg.qr(rng.normal(size=(num_inputs, num_inputs)))[0]
    X = rng.normal(size=(NUM_SAMPLES, num_inputs)) * scales @ mixing
    weights = rng.normal(size=(num_inputs, num_outputs))
    return weights.astype(np.float32), (X.T @ X).astype(np.float32)


def compare(num_inputs: int, num_outputs: int) -> None:
    """Times of the methods in turns, and their errors."""
    weights, gram = layer(num_inputs, num_outputs)
    errors = {}

    def prune(name: str, method: Any) -> Any:
        pruned = pruning.prune_layer(weights, gram, KEPT, method=method)
        errors[name] = float(pruned.error)
        return pruned.weights

    seconds: dict[str, np.ndarray] = {}
    for methods, repeats in ((QUICK, 5), (SLOW, 1)):
        calls = {name: partial(prune, name, method) for name, method in methods.items()}
        seconds |= interleaved(calls, repeats=repeats)
    title = f"a layer of {num_inputs} inputs and {num_outputs} outputs, 60 % zeros"
    report(title, seconds, baseline="SparseGPT", unit="ms")
    least = errors["ALPS"]
    ratios = ", ".join(f"{name} {error / least:.3f}" for name, error in errors.items())
    print(f"  error over that of ALPS: {ratios}", flush=True)


if __name__ == "__main__":
    main()
