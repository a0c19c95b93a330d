"""The files of a source: listed, opened, unpacked, split into rows; temporary files, the record cache."""
