"""Connections of clients: sockets, TLS, frames and the order of responses."""
