"""What a new user does first, a short script each; run one with ``python -m examples.first_hour.<name>``."""
