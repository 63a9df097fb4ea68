"""Tables of commands, one for each part of the package that can be installed by itself."""
