"""PNG and JPEG images: the header read and checked, resizing, PNG from raw pixels, contact sheets."""
