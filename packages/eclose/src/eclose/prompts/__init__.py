"""What each role is asked and shown; the texts are locked by their hashes."""
