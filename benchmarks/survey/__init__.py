"""Many models of many families beside other runtimes: which are imported, right and fast, and what each one loses on."""
