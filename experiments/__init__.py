"""The experiments of the papers: ``python -m experiments --help``."""

import os

# Of LAPACK's own threads each waits for the others in a loop: where the cores are busy, with other
# trials or otherwise, a decomposition takes a hundred times as long as by one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
