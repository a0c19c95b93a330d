"""The program that runs on each TPU VM host: standard library and `packaging`, Python 3.8+, one zip."""
