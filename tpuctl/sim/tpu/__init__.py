"""The Cloud TPU API of the simulator: the world, spoken over gRPC and over REST."""
