"""A second process that reads and draws for the one that makes a report (`start.py`).

Decoding a journal takes as long as measuring what stands in it, and plots as long as tables. The second
process (`__main__.py`) decodes a long one ahead of the first, then loads matplotlib, is sent the content, and
draws it while the first makes tables. What it does not do is done by the first: the report is the same, only
later.

On its standard output stand, run by run in the order of its arguments, blocks of entries (`wire.py`), each
behind its length, and how the reading of the run ended. Then, where plots are wanted, it reads a content from
standard input until that is closed, and writes the plots of it to the end of standard output.
"""
