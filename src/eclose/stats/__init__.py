"""How we count: arrays in, numbers out. Randomness is an argument; what is undefined is None."""
