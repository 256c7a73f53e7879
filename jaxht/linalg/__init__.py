"""Linear algebra that several parts share: selection, projections, decompositions, eigenvalues,
linear systems."""
