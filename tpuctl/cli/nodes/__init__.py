"""The commands that make, change and delete TPUs."""
