"""The relay of Identity-Aware Proxy, through which clients reach hosts without external addresses."""
