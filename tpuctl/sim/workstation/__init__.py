"""The programs of a simulated shell: OpenSSH and gcloud, unmodified, that also find simulated hosts."""
