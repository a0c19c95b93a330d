"""From a script on the laptop to a supervisor on each host."""
