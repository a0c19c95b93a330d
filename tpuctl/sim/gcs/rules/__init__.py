"""What may be asked: names, fields, patterns and conditions of requests."""
