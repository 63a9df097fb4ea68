"""Real questions with traces that are reliable, or locally sound and yet a gap: the test ground of detectors.

Only our words, ids, labels and reasons lie here, one file a kind (see ``NOTICE.md``). Questions and passages are read
from the data folder. No detector was run on the traces while they were written.
"""
