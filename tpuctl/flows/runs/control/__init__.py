"""What users do to runs that were started: stop them, wait for them, and wait in line for a TPU."""
