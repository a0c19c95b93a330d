"""Programs on a simulated host: `programs.py` starts them, `processes.py` ends them."""
