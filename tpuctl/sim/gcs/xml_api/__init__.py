"""The XML API: routes, operations and documents."""
