"""What each command does. Clients come as arguments; nothing here prints or parses."""
