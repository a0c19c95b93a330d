"""What a source's files lie in: a folder of this disk, of a bucket, of an archive."""
