"""Forwards ports of this machine to a host, through connections that are opened again when they are lost."""
