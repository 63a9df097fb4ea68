"""Chat models: one interface, and the servers, local weights and adapters behind it."""
