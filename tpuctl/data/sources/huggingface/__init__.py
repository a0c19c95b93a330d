"""Reads what the library `datasets` of Hugging Face writes."""
