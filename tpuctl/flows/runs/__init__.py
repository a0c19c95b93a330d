"""Runs: submitted, followed, judged, pulled."""
