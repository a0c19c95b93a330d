"""Who may say how a run ended, and what follows from what they say: docs/runs.md."""
