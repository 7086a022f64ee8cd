"""What MindSpore wants before its first operator, once for all tests of a process."""
