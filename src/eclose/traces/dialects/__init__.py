"""Names under which the tracing tools store the content of a span, one module for each dialect."""
