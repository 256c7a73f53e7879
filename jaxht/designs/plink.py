"""Genotypes from files of PLINK, without unpacking them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxht._typing import ArrayDType
from jaxht.designs.genotypes import Genotypes

BED_HEADER = bytes([0x6C, 0x1B, 0x01])  # a .bed file, a marker after the other


class Bed(NamedTuple):
    """What :func:`read_bed` reads.

    Attributes:
        design: :class:`Genotypes` (n, d), which count the copies of ``counted``.
        samples: (n,) text, the second column of the .fam file.
        markers: (d,) text, the second column of the .bim file.
        counted: (d,) text, the allele that is counted, the fifth column of the .bim file.
    """

    design: Genotypes
    samples: np.ndarray
    markers: np.ndarray
    counted: np.ndarray


def read_bed(path: Any, dtype: ArrayDType = float) -> Bed:
    """Read genotypes from a .bed file of PLINK and the .fam and .bim files beside it, as packed as
    they are.

    The counted allele is the first one of the .bim file (``A1``, by PLINK's default the minor
    allele).

    Args:
        path: of the .bed file, with or without its suffix; a marker after the other ("SNP-major"),
            as PLINK 1.9 and 2 write it.
        dtype: float32 or float64, of products.

    Returns:
        A :class:`Bed`: the design, and the names of samples and markers.

    Raises:
        FileNotFoundError: if one of the three files is missing.
        ValueError: if the .bed file has another header, or a length that is not that of the other
        two.

    Cost: the file is read once, in blocks; memory of its length, and a block.

    Source: the file formats of PLINK 1.9, Chang et al. 2015.

    Example:
        >>> import pathlib, tempfile, jax, jaxht
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "study.bed").write_bytes(bytes([0x6C, 0x1B, 0x01, 0b111000]))
        >>> _ = (folder / "study.fam").write_text("1 ann 0 0 2 -9" + chr(10) + "2 bo 0 0 1 -9" + chr(10))
        >>> _ = (folder / "study.bim").write_text("1 rs1 0 1000 A G" + chr(10))
        >>> bed = jaxht.designs.read_bed(folder / "study")
        >>> bed.design.columns(jax.numpy.array([0])).tolist(), bed.samples.tolist(), bed.counted.tolist()
        ([[2.0, 1.0]], ['ann', 'bo'], ['A'])
    """
    stem = Path(path)
    stem = stem.with_suffix("") if stem.suffix == ".bed" else stem
    files = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in ("bed", "fam", "bim")}
    (samples,) = _read_columns(files["fam"], [1])
    markers, counted = _read_columns(files["bim"], [1, 4])
    n = len(samples)
    d = len(markers)
    width = -(-n // 4)
    size = files["bed"].stat().st_size
    needed = len(BED_HEADER) + d * width
    with files["bed"].open("rb") as file:
        header = file.read(len(BED_HEADER))
        if header != BED_HEADER:
            raise ValueError(
                f"path must be a .bed file that begins with {BED_HEADER.hex()}; {files['bed']}: {header.hex()}"
            )
        if size != needed:
            raise ValueError(
                f"path must be of {n} samples and {d} markers, as its .fam and .bim files are, in {needed} bytes; "
                f"{files['bed']} has {size}"
            )

        def read(first: int, last: int) -> np.ndarray:
            return np.fromfile(file, np.uint8, (last - first) * width).reshape(last - first, width)

        return Bed(Genotypes.pack(read, (n, d), dtype), samples, markers, counted)


def _read_columns(path: Path, columns: list[int]) -> list[np.ndarray]:
    """Some columns of a file of words."""
    with path.open() as file:
        rows = [line.split() for line in file if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) <= max(columns):
            raise ValueError(
                f"path must have files of PLINK beside it; row {number} of {path} has {len(row)} columns"
            )
    return [np.array([row[column] for row in rows]) for column in columns]
