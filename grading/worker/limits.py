"""The limits of what crosses between the grader and a worker, which may send anything at all."""

MAX_HEADER_BYTES = 16 << 20
MAX_FRAME_BYTES = 512 << 20
MAX_EXECUTED_BYTES = 1 << 20  # of the answer to a cell, which is None or an exception's text
MAX_STORAGES = 10_000  # per frame
MAX_ARRAY_BYTES = 256 << 20  # of one array made dense: a stride of 0 costs nothing to send
MAX_FRAME_DENSE_BYTES = 512 << 20
MAX_ITEMS = 5_000_000  # of all lists, tuples, dicts and sets, as a loop or repr would meet them
MAX_DEPTH = 100
MAX_DIMENSIONS = 32
MAX_TEXT = 2000  # characters of an exception's text
READ_AHEAD_BYTES = 64 << 10  # a smaller frame needs one system call to send and one to receive
MAX_TAPE_BYTES = 4 << 20  # of one check's exchanges, kept for replay
MAX_TAPES_BYTES = 64 << 20
