"""Shen & Li, A Tight Bound of Hard Thresholding, JMLR 2018."""
