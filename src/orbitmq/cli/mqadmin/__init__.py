"""mqadmin's command names, as aliases of ours."""
