"""Reads objects of the bucket as input from strangers: bounded, strictly typed, refused with one error."""
