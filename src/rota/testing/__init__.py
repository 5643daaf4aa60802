"""For tests, ours and those of plug-in authors: the virtual clock, fakes and contract suites."""
