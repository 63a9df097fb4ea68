"""The Python interface: verbs that call models, synchronous and asynchronous.

Each verb does what the command of its name does and writes the same files. The synchronous ones also work inside a
running event loop, such as that of a notebook; the ones that begin with ``a`` are coroutines.
"""
