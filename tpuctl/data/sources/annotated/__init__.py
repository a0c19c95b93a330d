"""Reads files together with what others say of them: boxes, masks, rows of a table."""
