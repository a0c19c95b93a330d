"""Recognises secrets, and masks them: in texts, arguments, diffs and files."""
