"""The schema of a dataset: the feature of each field, and the classes of a label."""
