"""A look at the files that are left open."""

from tests.isolation.open_files import no_file_is_left_open as no_file_is_left_open
