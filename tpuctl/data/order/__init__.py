"""The order of records: which split each one is in, and the seeded shuffle that decides on its shard."""
