"""What a response is, whatever its form: its steps, its answer, its evidence, and the rule that decided."""
