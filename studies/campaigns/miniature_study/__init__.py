"""Parts of the miniature study."""
