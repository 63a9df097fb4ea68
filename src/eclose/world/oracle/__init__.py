"""The exact judge: evidence, alignment, soundness, closure and family conditions, decided from words."""
