"""The functions of SQLite that a query may call: they read their arguments and nothing else."""

from __future__ import annotations

_NAMES = """
    abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos
    cosh count cume_dist date datetime degrees dense_rank exp first_value floor format glob
    group_concat hex if ifnull iif instr json json_array json_array_length json_error_position
    json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty
    json_quote json_remove json_replace json_set json_type json_valid julianday lag last_value lead
    length like ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length
    percent_rank pi pow power printf quote radians rank replace round row_number rtrim sign sin
    sinh sqrt strftime string_agg substr substring sum tan tanh time timediff total trim trunc
    typeof unicode unixepoch upper -> ->>
"""
FUNCTIONS = frozenset(_NAMES.split())
TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
