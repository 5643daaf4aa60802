"""What every store promises, as classes of tests that any store can be put through.

A plug-in author writes a `bench` fixture that gives a `tests.tools.store_bench.Bench` over an open,
empty store on a `VirtualClock`, and a module that inherits each class under a name pytest collects:
`class TestQueue(QueueContract): pass`. The tests are coroutine functions: use the asyncio plug-in
you like, and call `pytest.register_assert_rewrite("tests.contract.store")` for readable failures.
"""
