"""The experiments of the papers: ``python -m experiments --help``."""

import os

# Sweeps run one batch of trials a core, and XLA's thread pool, which is made when JAX starts, must be larger than that:
# it deadlocks when all of its threads wait in large batched LAPACK calls.
CORES = os.cpu_count() or 1
os.environ.setdefault("NPROC", str(4 * CORES))

# Of LAPACK's own threads each waits for the others in a loop: where the cores are busy, with other trials or otherwise,
# a decomposition takes a hundred times as long as by one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
