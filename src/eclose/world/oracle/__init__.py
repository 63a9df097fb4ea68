"""The exact judge: evidence, alignment, soundness, closure and conditions of families, decided from words."""
