"""Simulated annotators: they open the pages of the annotation server, read them, and send the forms they find there.

They know the server by its pages alone; what they decide follows from the truth about the world, with error rates.
"""
