"""Options, output and progress shared by commands."""
