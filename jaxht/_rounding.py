"""Sizes are rounded up, so that neighbouring ones share a compiled program."""

__all__ = ["round_up"]


def round_up(size: int, parts: int, least: int = 1) -> int:
    """The next of so many sizes, a power of two, between each power of two and the next; a multiple
    of ``least`` where these are closer."""
    step = max(least, 2 ** max(0, size.bit_length() - 1) // parts)
    return -(-size // step) * step
