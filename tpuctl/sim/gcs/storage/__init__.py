"""The store: buckets, objects and uploads as rows of one SQLite file, their bytes in files. No HTTP."""
