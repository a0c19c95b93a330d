"""The program that runs on each TPU VM host: standard library only, Python 3.8+, shipped as one zip."""
