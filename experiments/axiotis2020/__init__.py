"""Axiotis & Sviridenko, Sparse Convex Optimization via Adaptively Regularized Hard Thresholding,
2020."""
