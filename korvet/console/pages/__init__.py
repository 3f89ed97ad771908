"""The pages of the console: the data of each, and the changes of its forms."""
