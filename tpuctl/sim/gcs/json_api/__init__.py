"""The JSON API: routes, one module of operations for each resource, and the resources in responses."""
