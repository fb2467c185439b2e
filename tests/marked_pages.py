"""Pages of the documentation whose tables are written by programs: each between two comments that name it."""


def filled(text: str, **parts: str) -> str:
    """Return a page's text with these parts in place of those that it has."""
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{part}{end}{rest.partition(end)[2]}"
    return text
