"""What TPUs have cost: runs, and the time in which no run used a TPU."""
