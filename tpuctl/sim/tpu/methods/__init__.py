"""The methods of the API by subject: each takes a request message, calls the world, returns a response."""
