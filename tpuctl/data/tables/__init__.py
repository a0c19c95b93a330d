"""Reads rows with named columns: CSV and JSON Lines, and typed cells, which Parquet uses, too.

The columns and types of Parquet files are in parquet.py.
"""
