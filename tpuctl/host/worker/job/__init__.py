"""The script as a process, and why it ended."""
