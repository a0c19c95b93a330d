"""Changes without a request: lifecycle rules, and the deletion of what has expired."""
