"""Submits and follows runs, decides their outcome, and downloads their files."""
