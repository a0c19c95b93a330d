"""A bucket that tpuctl 0de294d4 wrote, and what each reading command and call answered about it."""
