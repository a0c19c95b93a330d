"""The commands up, ls and down."""
