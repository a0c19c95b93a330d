"""Uploads of objects' bytes: in one request, or resumable in several."""
