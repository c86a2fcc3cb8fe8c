"""The other program: a child process that measures one engine on one path and talks over its standard streams."""
