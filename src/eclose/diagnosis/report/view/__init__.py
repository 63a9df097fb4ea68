"""All responses of a large run in the browser: an index built once, and a read-only server on this machine."""
