"""Real questions with traces that are reliable, or locally sound and yet a gap: the test ground of detectors.

Only our words, ids, labels and reasons lie here, one file a kind (see ``NOTICE.md``). Questions and passages are read
from the data folder. The traces were written without looking at the features or scores of any detector.
"""
