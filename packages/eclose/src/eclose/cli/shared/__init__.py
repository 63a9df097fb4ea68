"""What the commands of all houses share: options, output, progress, recipes."""
