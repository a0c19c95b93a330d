"""Uploads a dataset with Apache Beam."""
