"""The verbs: what each command does, with clients as arguments; nothing here prints or parses."""
