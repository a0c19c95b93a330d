"""Text from elsewhere, made safe to show."""
