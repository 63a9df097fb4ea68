"""An OpenAI-compatible server on this machine that answers from the world, with faults to order and a bill."""
