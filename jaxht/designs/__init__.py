"""Design matrices behind one protocol: dense, sparse, of small integers, in blocks, streamed,
products alone."""

from jaxht.designs.conversion import design, hstack, standardize
from jaxht.designs.dense import Dense
from jaxht.designs.entries import Entries
from jaxht.designs.genotypes import Genotypes
from jaxht.designs.integers import Integers
from jaxht.designs.matrix import MatrixDesign
from jaxht.designs.operator import LinearOperator
from jaxht.designs.plink import Bed, read_bed
from jaxht.designs.protocol import Design
from jaxht.designs.reading import Reading
from jaxht.designs.repeated import RepeatedColumns
from jaxht.designs.rows import SparseRows
from jaxht.designs.scaling import Centred, Standardized
from jaxht.designs.sharded import ShardedMatrix
from jaxht.designs.sparse import SparseMatrix
from jaxht.designs.stacked import Stacked
from jaxht.designs.streamed import Streamed, stream

__all__ = [
    "Bed",
    "Centred",
    "Dense",
    "Design",
    "Entries",
    "Genotypes",
    "Integers",
    "LinearOperator",
    "MatrixDesign",
    "Reading",
    "RepeatedColumns",
    "ShardedMatrix",
    "SparseMatrix",
    "SparseRows",
    "Stacked",
    "Standardized",
    "Streamed",
    "design",
    "hstack",
    "read_bed",
    "standardize",
    "stream",
]
