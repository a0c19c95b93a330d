"""Downloads of objects' bytes through the JSON API and the XML API."""
