"""The metrics of the paper over judged responses."""
