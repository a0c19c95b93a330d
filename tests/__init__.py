"""Tests, at the same paths as what they test; run from the root of the checkout."""
