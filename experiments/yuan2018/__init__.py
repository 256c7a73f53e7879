"""Yuan, Li & Zhang, Gradient Hard Thresholding Pursuit, JMLR 2018."""
