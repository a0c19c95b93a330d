"""Completion of commands, options and values in bash, zsh and fish, built on click's."""
