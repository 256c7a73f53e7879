"""``python -m benchmarks [NAME ...]``: run all the benchmarks, or those named.

``python -m benchmarks support [OPTION ...]``, ``certified``, ``streaming``, ``genotypes``, ``long``
and ``processes``, which need long or much memory or have options of their own, are run by name
alone.
"""

import importlib
import platform
import sys

import jax

import jaxht

NAMES = (
    "selection",
    "htp",
    "overhead",
    "recovery",
    "accuracy",
    "sweep",
    "transforms",
    "sparse_inference",
    "sparse",
    "single",
    "greedy",
    "pylops_omp",
    "message_passing",
    "complex_numbers",
    "phantom",
    "optima",
    "subset",
    "stochastic",
    "rank",
    "dual",
    "precision",
    "pruning",
    "choice",
    "inference",
    "derivatives",
    "first_call",
    "first_fit",
    "first_hour",
)
ALONE = ("support", "certified", "streaming", "genotypes", "long", "processes", "gpu")


def main(names: list[str]) -> None:
    """Run the benchmarks in turn."""
    if names and names[0] in ALONE:  # before JAX takes a device: their processes need it
        return importlib.import_module(f"benchmarks.{names[0]}").main(names[1:])
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(
            f"no such benchmark: {', '.join(unknown)}; there are {', '.join((*NAMES, *ALONE))}"
        )
    jaxht.keep_programs()
    device = jax.devices()[0]
    print(
        f"jax {jax.__version__}, Python {platform.python_version()}, {device.platform} {device.device_kind}"
    )
    print(
        "medians of interleaved runs; ratios are medians over turns, with their 10 % and 90 % quantiles"
    )
    for name in names or NAMES:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
