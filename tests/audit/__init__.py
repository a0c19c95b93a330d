"""Looks up known vulnerabilities of the pinned packages."""
