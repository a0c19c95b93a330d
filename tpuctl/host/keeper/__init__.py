"""The keeper: a program on a TPU's hosts that deletes the TPU at the end of its --ttl or --idle."""
