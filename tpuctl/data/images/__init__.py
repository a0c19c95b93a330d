"""Encoded images: inspected, resized, written, shown."""
