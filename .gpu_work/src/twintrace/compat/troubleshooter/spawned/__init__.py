"""`troubleshooter` for processes that a script under run-as starts: this folder is on their path.

In: `import troubleshooter`. Out: the embassy under that name. Not here: the embassy. Surprising: what is imported from here is
another module by the time the import is done.
"""
