"""Decides which split each record is in, and its position there."""
