"""Questions with passages -> families: a verified response, and what must change when a fact or the target does."""
