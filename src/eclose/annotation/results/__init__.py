"""What comes of annotation: how far people agree, which labels hold, and files that others read."""
