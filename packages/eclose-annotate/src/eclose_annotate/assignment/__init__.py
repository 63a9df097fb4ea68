"""Assignment of responses to people, balanced and in a seeded order."""
