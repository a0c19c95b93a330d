"""Reads arrays (NumPy, IDX) as records."""
