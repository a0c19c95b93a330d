"""Bytes in and out: uploads in every protocol of the JSON API, downloads of both APIs."""
