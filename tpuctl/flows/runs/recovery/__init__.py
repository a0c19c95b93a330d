"""Starts runs again that were preempted or lost, by a step that anybody may take: docs/runs.md."""
