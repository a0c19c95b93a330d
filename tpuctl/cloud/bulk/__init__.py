"""Many objects of a bucket, listed and read with little CPU time for each."""
