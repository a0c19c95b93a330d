"""Prints the result of the audit; the exit code is 1 for a known vulnerability."""

import sys

from tests.audit.advisories import audit

result = audit()
print(result.text)
sys.exit(1 if result.failed else 0)
