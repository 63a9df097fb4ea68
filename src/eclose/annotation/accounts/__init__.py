"""Who may get in: people and their invitations, passwords, sessions, and how often somebody may try."""
