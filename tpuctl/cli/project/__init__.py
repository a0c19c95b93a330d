"""init, config, doctor."""
