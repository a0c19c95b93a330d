"""Kinds of sources told apart by the names of their files, for which no reader is imported."""
