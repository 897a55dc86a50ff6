"""Where a store lies: a folder or an object store, with publishing and leases."""
