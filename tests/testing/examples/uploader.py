"""A user's uploader: every file of a folder into a bucket, safe to be run again."""

from pathlib import Path

from google.api_core.exceptions import PreconditionFailed
from google.cloud import storage


def upload(client: storage.Client, bucket: str, folder: Path, prefix: str) -> int:
    """Upload the files that are not in the bucket yet, and return their number."""
    uploaded = {blob.name for blob in client.list_blobs(bucket, prefix=prefix)}
    missing = [path for path in sorted(folder.iterdir()) if f"{prefix}/{path.name}" not in uploaded]
    for path in missing:
        blob = client.bucket(bucket).blob(f"{prefix}/{path.name}")
        try:
            blob.upload_from_filename(path, if_generation_match=0)
        except PreconditionFailed:
            pass  # an earlier attempt arrived, and only its response was lost
    return len(missing)
