"""The simulator's Cloud Storage: a server on disk whose state survives a kill -9.

The way of a request, from `server.py` on, which finds the API by the path:

- a resumable upload starts in uploads/routes.py; uploads/resumable.py takes its chunks and checks their
  ranges; storage/upload_sessions.py has its state;
- an upload in one request: uploads/routes.py, uploads/single_request.py, uploads/spooling.py;
- a download: server.py for its route, downloads/sending.py with its range;
- a listing: json_api/objects.py or xml_api/routes.py, rules/list_query.py, storage/listing.py;
- a multipart upload of the XML API: xml_api/multipart_uploads.py, storage/multipart_uploads.py, and
  storage/composing.py to join its parts.
"""
