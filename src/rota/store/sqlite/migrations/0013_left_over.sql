-- What is set aside for attempts that are closed: nothing, and finding that out must cost nothing.
create index spending_left_over on spending (run_id)
where open = 0 and (reserved_tokens <> 0 or reserved_cost <> 0 or reserved_turns <> 0
  or reserved_tools <> 0 or reserved_seconds <> 0);
