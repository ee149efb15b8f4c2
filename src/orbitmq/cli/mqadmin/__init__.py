"""The names of mqadmin's commands, as aliases of ours."""
