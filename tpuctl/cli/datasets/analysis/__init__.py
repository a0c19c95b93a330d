"""The commands data stats, diff, split and sample."""
