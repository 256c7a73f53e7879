"""The resampling, knockoffs and standard errors of :mod:`jaxht.inference`."""
