"""What lies in tar and zip archives, as a tree of files: nothing is unpacked to a folder.

fsspec's archives are no replacement: they read 20,000 files of a tar in 11 times the CPU time,
and of a zip in 1.3 times.
"""
