"""What runs have cost: an estimate by the time of each attempt and the price then."""
