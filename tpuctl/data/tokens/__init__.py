"""Token ids of texts: tokenizer, vocabulary, encoder."""
