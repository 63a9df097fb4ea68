"""A multi-hop world whose truth is known: its benchmark, oracle, faults, roles and server."""
