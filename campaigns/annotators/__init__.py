"""People before the annotation server: they open its pages, read what is on them, and send the forms they find there.

They know the server by its pages alone; what they decide comes from what is true of the world, with errors where asked.
"""
