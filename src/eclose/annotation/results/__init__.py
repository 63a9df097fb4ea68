"""Results of annotation: agreement, final labels, and files that other tools read."""
