"""What the experiments share: configurations, sessions, data, tasks, solvers, plots."""
