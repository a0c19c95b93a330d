"""What a worker tells the bucket: status, log, reports."""
