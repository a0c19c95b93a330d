"""Rows with named columns: how the cells of CSV, JSON and Parquet are typed and converted."""
