"""What lies in tar and zip archives, as a tree of files: nothing is unpacked to a folder."""
