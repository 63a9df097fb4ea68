"""Statistics on arrays: rates, intervals, agreement, ranking and the bootstrap. Random generators are arguments;
undefined values are None.
"""
