"""What tasks of these tests call."""


async def greet(run):
    return {"hello": run.payload}
