"""Reads datasets in the bucket to say what they hold, and makes others of their records."""
