"""The Cloud TPU API as a provider of nodes."""
