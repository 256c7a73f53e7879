"""The experiments of the papers: ``python -m experiments --help``."""
