"""up, ls, down."""
