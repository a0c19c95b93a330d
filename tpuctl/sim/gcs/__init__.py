"""The simulator's Cloud Storage: a server on disk whose state survives a kill -9.

The way of a request, from `server.py` on, which finds the API by the path:

- an upload: uploads.py takes it, in one request or in chunks; storage/upload_sessions.py has the state of
  one in chunks;
- a download: server.py for its route, downloads.py with its range;
- a listing: json_api/objects.py or xml_api/routes.py, rules.py for its query, storage/store.py;
- a multipart upload of the XML API: xml_api/multipart_uploads.py, storage/upload_sessions.py, and
  storage/store.py to join its parts.
"""
