"""Speed and recovery claims, each measured against its baseline in one run."""
