"""Inspect AI: our judge as its scorer, its providers as our judges, and logs both ways."""
