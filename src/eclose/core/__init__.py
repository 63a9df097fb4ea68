"""What things are: frozen values, standard library only."""
