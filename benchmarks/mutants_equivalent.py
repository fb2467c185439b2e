"""Mutants that change nothing a test could see: file, line and what stands there instead, with the reason."""

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "fedkernel/engines/grpc/stream_grid.py",
        "END_SECONDS = 5.0  # longest wait for streams to end once nothing is in flight, in seconds",
        "6.0",
    ): "patience: which second it is, no answer hangs on",
    (
        "fedkernel/numerics/pairwise.py",
        "_CACHE = 2**20",
        "3",
    ): "blocks of another size: the same numbers, more slowly",
    (
        "fedkernel/peers/letters.py",
        "end = first + (_LENGTH.unpack_from(data, start)[0] if first <= len(data) else 0)",
        "(first < len(data))",
    ): "a length at the very end is refused either way: as cut off, or as shorter than any letter",
    (
        "fedkernel/peers/letters.py",
        "end = first + (_LENGTH.unpack_from(data, start)[0] if first <= len(data) else 0)",
        "1",
    ): "where a length is cut off, the end is beyond the data with 0, too",
    ("fedkernel/protocol/guards.py", "columns = vectors.reshape(len(vectors), -1)", "2"): (
        "NumPy takes any negative number for the size that is left"
    ),
    (
        "fedkernel/site/site_builder.py",
        "if run.prepare is None or preparation is None:",
        "(run.prepare is None and preparation is None)",
    ): "stored_preparation, just before, raises unless both are None or neither is",
    (
        "strategies/cluster_count.py",
        "largest = max(worth.values(), default=Silhouette(-1.0, 0.0))",
        "(1.0)",
    ): "taken where no division has a silhouette, so that none is compared with it",
    (
        "fedkernel/testing/result_properties.py",
        "if pair.tags.alone != (error < CENTRAL):",
        "(error <= CENTRAL)",
    ): "an error of 1e-8 to the last bit",
    (
        "fedkernel/testing/pair.py",
        'return f"changes the result by {error:.1e}" + (between if SAME < error < OTHER else "")',
        "(SAME <= error < OTHER)",
    ): "an error of 1e-16 to the last bit",
    (
        "fedkernel/wire/parse_limits.py",
        "total += _entries(content, path[1:], fields_to_go)",
        "total -= _entries(content, path[1:], fields_to_go)",
    ): "the sign is turned at each of six levels",
}
