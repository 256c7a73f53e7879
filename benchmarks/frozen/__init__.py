"""Programs that the benchmarks compare with. They are never improved."""
