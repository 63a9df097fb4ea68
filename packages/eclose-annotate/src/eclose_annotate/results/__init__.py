"""Results of a project: agreement, settled labels, exported files."""
