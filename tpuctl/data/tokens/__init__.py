"""Texts as token ids: tokenizers, vocabularies, and the source that holds ids in place of text."""
