"""Arrays (NumPy, IDX) as records: which field an array is by its name, its type, and the source itself."""
