"""The files under a source: which there are, their lines and rows, and what is kept on the local disk."""
