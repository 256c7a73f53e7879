"""Zhou, Yuan & Feng, Efficient Stochastic Gradient Hard Thresholding, NeurIPS 2018."""
