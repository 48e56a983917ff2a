"""Examples through networks: the statistics they are served with, and a task's sums, fast on a GPU."""
