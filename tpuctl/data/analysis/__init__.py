"""What a dataset holds: counts, moments, duplicates, and what two datasets have in common."""
