"""Small tools that every room uses. They import nothing of this package but `errors` and `options`."""
