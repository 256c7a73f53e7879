"""Kernels for accelerators, in Pallas; what each computes on other platforms is beside its use."""
