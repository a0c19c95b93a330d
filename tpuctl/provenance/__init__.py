"""What makes the result of a run again, besides what was asked."""
