"""The store: buckets and objects in a database, their bytes in files."""
