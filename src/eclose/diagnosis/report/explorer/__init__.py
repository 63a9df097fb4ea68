"""The list of responses on the page: what it filters by, and which responses of a large run it holds."""
