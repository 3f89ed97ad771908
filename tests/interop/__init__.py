"""Tests of real clients over real sockets, against Korvet or another broker."""
