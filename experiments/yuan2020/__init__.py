"""Yuan, Liu, Wang, Liu & Metaxas, Dual Iterative Hard Thresholding, JMLR 2020."""
