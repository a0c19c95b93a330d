"""What each field of a record is: features and classes."""
