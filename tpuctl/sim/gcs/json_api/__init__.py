"""The JSON API: routes, operations, and how buckets and objects look in it."""
