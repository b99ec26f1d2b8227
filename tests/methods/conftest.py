"""Puts this folder on the path, for the tests of parts: `tiny` is theirs, too."""
