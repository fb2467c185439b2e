"""Mutants that change nothing a test could see, by file, line and replacement, with the reason."""

EQUIVALENT: dict[tuple[str, str, str], str] = {}
