"""Datasets: uploaded, listed, checked, removed; public ones fetched."""
