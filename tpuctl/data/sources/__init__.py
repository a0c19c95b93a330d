"""One reader for each format of a source; `registry` chooses the reader."""
