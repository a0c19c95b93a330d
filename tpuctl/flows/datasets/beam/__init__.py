"""Uploading a dataset with Apache Beam."""
