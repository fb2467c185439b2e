"""A package of somebody else's, of which fedkernel knows nothing."""
