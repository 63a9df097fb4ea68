"""An OpenAI-compatible server on loopback that answers from the world, with faults on request and a bill."""
