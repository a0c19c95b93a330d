"""The SSH server of a simulated host: connections, sessions, accepted keys, SFTP."""
