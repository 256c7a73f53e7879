"""Training loops with jaxht in them; run one with ``python -m examples.<name>``."""
