"""The XML API: routes, one module of operations for each resource, and XML documents."""
