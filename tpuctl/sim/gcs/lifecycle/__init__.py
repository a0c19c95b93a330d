"""Changes objects without a request: applies lifecycle rules, and deletes what has expired."""
